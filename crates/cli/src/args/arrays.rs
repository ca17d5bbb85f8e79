//! Arrays of modelled drives.

use clap::Args;
use manylogs_lab::Shape;
use manylogs_lab::replay::SlowMember;

use crate::units::{Unexpected, duration, expect};

#[derive(Debug, Args)]
pub(crate) struct ArrayArgs {
    /// Arrays of such drives: raid0:N, raid1:N, raid10:N, with :chunk=64K and
    /// :placement=known|ignored; ignored takes the array for one drive. With :safe-mode=200ms and
    /// :bitmap=64M md writes to the members by itself. Single drives when not given.
    #[arg(long, value_name = "ARRAY")]
    pub(crate) array: Vec<Shape>,
    /// A member of the array that answers late, as 2:20ms. Members count from 0.
    #[arg(long, value_name = "N:TIME", value_parser = slow_member, requires = "array")]
    pub(crate) slow_member: Option<SlowMember>,
}

fn slow_member(text: &str) -> Result<SlowMember, Unexpected> {
    let slow = text.split_once(':').and_then(|(member, by)| {
        Some(SlowMember { member: member.parse().ok()?, by: duration(by).ok()? })
    });
    expect(slow, text, "a member and a time, as 2:20ms")
}
