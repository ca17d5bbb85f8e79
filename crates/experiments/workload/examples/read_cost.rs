//! Measures the cost of reading a trace, per request: decompressing it, decoding it, and repeating
//! it from memory.
//!
//! `cargo run --release -p manylogs-workload --example read_cost -- TRACE...`

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use manylogs_workload::transform::Repeat;
use manylogs_workload::{OpenOptions, TraceSource, open};

const PASSES: u32 = 7;
const REPEATS: u64 = 21;

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args().skip(1).map(PathBuf::from) {
        let options = OpenOptions::default();
        let (mut decompress, mut decode) = (f64::MAX, f64::MAX);
        let mut requests = 0;
        // The best of several passes, because other work on the machine can only add time.
        for _ in 0..PASSES {
            let started = cpu_nanos()?;
            requests = count(&mut open(&path, &options)?)?;
            decode = decode.min(cpu_nanos()? - started);
            let started = cpu_nanos()?;
            unpack(&path)?;
            decompress = decompress.min(cpu_nanos()? - started);
        }
        let mut repeat = Repeat::new(|| open(&path, &options), REPEATS)?;
        for _ in 0..requests {
            repeat.next_request().ok_or("the trace got shorter")??;
        }
        let started = cpu_nanos()?;
        let repeated = count(&mut repeat)?;
        let cached = (cpu_nanos()? - started) / repeated as f64;
        let each = |nanos: f64| nanos / requests as f64;
        eprintln!(
            "{}: {requests} requests, {:.0} ns of processor time each to open and read, of which \
             {:.0} ns decompression; {cached:.1} ns each repeated from memory",
            path.display(),
            each(decode),
            each(decompress),
        );
    }
    Ok(())
}

/// Processor time of this thread, which other work on the machine disturbs least.
fn cpu_nanos() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().ok_or("no schedstat")?.parse()?)
}

fn count(source: &mut impl TraceSource) -> Result<u64, Box<dyn Error>> {
    let mut requests = 0;
    while let Some(request) = source.next_request() {
        std::hint::black_box(request?);
        requests += 1;
    }
    Ok(requests)
}

fn unpack(path: &Path) -> Result<(), Box<dyn Error>> {
    let file = File::open(path)?;
    let mut reader: Box<dyn Read> = match path.extension().and_then(|name| name.to_str()) {
        Some("gz") => Box::new(flate2::read::MultiGzDecoder::new(file)),
        Some("zst") => Box::new(zstd::Decoder::new(file)?),
        _ => Box::new(file),
    };
    let mut buffer = vec![0; 256 << 10];
    while reader.read(&mut buffer)? > 0 {}
    Ok(())
}
