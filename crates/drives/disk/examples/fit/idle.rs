//! Fits the idle time after which the drive begins to verify writes: prints the demerit figure of
//! the odd records, with random terms off, for each candidate time.

use manylogs_disk::validate::{Chosen, Record, score};
use manylogs_disk::{Profile, RandomTerms};

pub(crate) fn fit(drive: &Profile, records: &[Record]) {
    let mut drive = drive.clone();
    for tenths in (0..=80).step_by(5) {
        drive.idle.verify_after_ms = f64::from(tenths) / 10.0;
        let odd = score(&drive, records, Chosen::Odd, RandomTerms::OFF, 1);
        println!(
            "# verify_after_ms {:.1}: demerit {:.3} ms, correlation {:.3}, mean error {:+.3} ms",
            drive.idle.verify_after_ms,
            odd.all.demerit_rms_ms,
            odd.correlation,
            odd.all.mean_error_ms
        );
    }
    drive.idle.verify_writes_max = 0;
    let never = score(&drive, records, Chosen::Odd, RandomTerms::OFF, 1);
    println!(
        "# never verified: demerit {:.3} ms, correlation {:.3}",
        never.all.demerit_rms_ms, never.correlation
    );
}
