//! Arrays of modelled drives.

use manylogs_disk::Profile;
use manylogs_lab::replay::ArraySettings;

use crate::args::arrays::ArrayArgs;
use crate::failure::Failure;

/// The arrays of such drives that the user asked for; one `None` if the user asked for no array.
pub(crate) fn arrays(
    args: &ArrayArgs,
    profile: &Profile,
) -> Result<Vec<Option<ArraySettings>>, Failure> {
    let Some(least) = args.array.iter().map(|shape| shape.members).min() else {
        return Ok(vec![None]);
    };
    if profile.shingled.is_some() {
        let message = "--array is for drives whose sectors can be written one by one: leave it out";
        return Err(Failure::input(message));
    }
    let slow = args.slow_member;
    if let Some(slow) = slow.filter(|slow| slow.member >= least) {
        let message = format!("--slow-member {}: members are 0 to {}", slow.member, least - 1);
        return Err(Failure::input(message));
    }
    Ok(args.array.iter().map(|&shape| Some(ArraySettings { shape, slow })).collect())
}
