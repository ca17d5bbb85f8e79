//! scratch
use manylogs_torture::{Plan, run_plan};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let kind = a[1].as_str();
    let (first, last): (u64, u64) = (a[2].parse().unwrap(), a[3].parse().unwrap());
    let faults = a.get(4).is_some_and(|s| s == "faults");
    let plan = |seed| match kind {
        "of" => Plan::of_seed(seed),
        "plain" => Plan::plain(seed),
        "ptrouble" => Plan::plain(seed).with_trouble(),
        "trouble" => Plan::troubled(seed),
        "strouble" => Plan::troubled(seed).sparse(),
        "opening" => Plan::of_seed(seed).with_trouble_at_opening(),
        "any" => Plan::of_seed(seed).with_passing_trouble(),
        "long" => Plan::plain(seed).zeroing_long_ranges(),
        "grow" => Plan::plain(seed).growing(),
        "set" => Plan::plain(seed).setting(),
        "rate" => Plan::plain(seed).rate_limited(),
        _ => panic!(),
    };
    std::panic::set_hook(Box::new(|_| ()));
    let next = std::sync::atomic::AtomicU64::new(first);
    let start = std::time::Instant::now();
    let fails = std::sync::Mutex::new(Vec::new());
    let slow = std::sync::Mutex::new(Vec::new());
    let states = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed > last {
                        return;
                    }
                    let t = std::time::Instant::now();
                    match run_plan(&plan(seed), faults) {
                        Ok(r) => {
                            states.fetch_add(
                                r.states.len() as u64,
                                std::sync::atomic::Ordering::Relaxed,
                            );
                        }
                        Err(e) => {
                            fails.lock().unwrap().push((seed, e));
                        }
                    }
                    slow.lock().unwrap().push((t.elapsed().as_millis(), seed));
                }
            });
        }
    });
    let n = last - first + 1;
    let el = start.elapsed().as_secs_f64();
    let mut f = fails.into_inner().unwrap();
    f.sort();
    for (seed, e) in &f {
        println!("{seed}: {}", e.chars().take(1500).collect::<String>());
    }
    let mut sl = slow.into_inner().unwrap();
    sl.sort();
    sl.reverse();
    println!(
        "{} failures of {n}, {:.1} histories/s, {:.0} states/s; slowest {:?}",
        f.len(),
        n as f64 / el,
        states.into_inner() as f64 / el,
        &sl[..sl.len().min(4)]
    );
}
