//! Compares our check with e2fsck on file systems that were left in various ways.

use manylogs_torture::ext4::{Templates, has_program};
use manylogs_torture::{Told, tell};

/// Number of histories. Each is judged as it was left, and after damage.
const HISTORIES: u64 = 200;

#[test]
fn a_check_tells_what_e2fsck_says_however_a_file_system_was_left() {
    if !has_program("mkfs.ext4") || !has_program("e2fsck") {
        manylogs_testkit::skip("needs mkfs.ext4 and e2fsck");
        return;
    }
    let templates = Templates::make().unwrap();
    let seeds = std::env::var("TOLD_SEEDS").map_or(1, |first| first.parse().unwrap());
    let images = templates.images().unwrap();
    let mut all = Vec::new();
    let mut wrong = Vec::new();
    for seed in seeds..seeds + HISTORIES {
        for damaged in [false, true] {
            match tell(seed, &images, damaged) {
                Ok(told) => {
                    assert!(damaged || !told.damaged, "seed {seed}: {told:?}");
                    all.push((damaged, told));
                }
                Err(problem) => wrong.push(format!("seed {seed}, damaged: {damaged}: {problem}")),
            }
        }
    }
    let count = |of: &dyn Fn(&(bool, Told)) -> bool| all.iter().filter(|it| of(it)).count();
    let (adopted, crashed) = (count(&|it| it.1.adopted), count(&|it| !it.1.unmounted));
    let found = count(&|it| it.1.damaged);
    let alone = count(&|it| it.1.by_check_alone);
    let replaced = count(&|it| it.1.by_e2fsck_alone);
    println!("{adopted} adopted, {crashed} crashed, {found} damaged, {alone} by the check alone");
    println!("{replaced} by e2fsck alone: copies in the journal that newer ones replace");
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
    let half = usize::try_from(HISTORIES / 2).unwrap();
    assert!(adopted > half && crashed > half && found > half, "all kinds are seen");
    assert!(replaced <= found / 20, "{replaced}: such copies are rare");
}
