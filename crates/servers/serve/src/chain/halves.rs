//! The halves of a served chain's pairs, as its operator sees them.

use std::path::{Path, PathBuf};

use manylogs_gecko::{Chain, Copied, HalfState, ReplaceError, ReplaceFault, Standing};
use manylogs_operate::control::OrderError;
use manylogs_operate::status::HalfStatus;

use super::members::is_same;
use super::sleep;

/// The halves of a chain of which `paths` names the drives.
pub(super) fn status(chain: &Chain, paths: &[PathBuf]) -> Vec<HalfStatus> {
    let path = |half: &HalfState| {
        let path = half.given.and_then(|given| paths.get(given));
        path.map(|path| path.display().to_string())
    };
    let power = chain.power();
    let told = |half: &HalfState| {
        let (state, since, copied) = match half.standing {
            Standing::Current(since) => ("current", Some(since), Copied::default()),
            Standing::Joining(copied) => ("joining", None, copied.unwrap_or_default()),
            Standing::None => ("missing", None, Copied::default()),
        };
        HalfStatus {
            pair: half.link as u64,
            half: half.half as u64,
            path: path(half),
            state: state.to_owned(),
            since,
            copied_segments: copied.done,
            segments: copied.segments,
            power: half.given.and_then(|given| {
                sleep::status(&power, given, paths.get(given).map(PathBuf::as_path))
            }),
        }
    };
    chain.halves().iter().map(told).collect()
}

/// The pair and the half that `old` names: `PAIR.HALF`, counted from 1, or the path of a drive.
///
/// # Errors
/// If it names none. The error says what to do.
pub fn place_of(
    old: &str,
    halves: &[HalfState],
    paths: &[PathBuf],
) -> Result<(usize, usize), String> {
    if let Some((pair, half)) = old.split_once('.')
        && let (Ok(pair), Ok(half)) = (pair.parse::<usize>(), half.parse::<usize>())
    {
        let place = (pair.wrapping_sub(1), half.wrapping_sub(1));
        let has = |state: &HalfState| (state.link, state.half) == place;
        return match halves.iter().any(has) {
            true => Ok(place),
            false => Err(format!("the chain has no half {old}: manylogs member list names them")),
        };
    }
    let is_old = |path: &PathBuf| path.as_os_str() == old || is_same(path, old.as_ref());
    let of_old = |state: &&HalfState| {
        let path = state.given.and_then(|given| paths.get(given));
        matches!(state.standing, Standing::Current(_)) && path.is_some_and(is_old)
    };
    let found = halves.iter().find(of_old).map(|state| (state.link, state.half));
    found.ok_or_else(|| {
        format!(
            "{old} is no half that the chain has now: name it as manylogs member list does, for \
             example 1.2 for the second half of the first pair"
        )
    })
}

/// Refuses a drive that is a member of the chain already.
///
/// # Errors
/// Says which one.
pub fn refuse_member(chain: &ChainView<'_>, new: &Path) -> Result<(), String> {
    let mut used = chain.halves.iter().filter_map(|state| chain.paths.get(state.given?));
    match used.any(|path| path == new || is_same(path, new)) {
        true => Err(is_member(new)),
        false => Ok(()),
    }
}

/// Says that a drive is a member of the chain already.
#[must_use]
pub fn is_member(new: &Path) -> String {
    format!("{} is a member of this chain already: name a drive that is none", new.display())
}

/// The halves of a chain, and the paths of its drives.
#[derive(Clone, Copy, Debug)]
pub struct ChainView<'a> {
    /// See [`Chain::halves`].
    pub halves: &'a [HalfState],
    /// Paths of the drives by the numbers in [`HalfState::given`].
    pub paths: &'a [PathBuf],
}

/// The error of an order for a drive that did not join.
pub(super) fn refusal(new: &Path, error: &ReplaceError) -> OrderError {
    let told = format!("{}: {error}", new.display());
    match error.fault() {
        ReplaceFault::Busy => OrderError::in_use(told),
        ReplaceFault::Failure => OrderError::new(told),
        ReplaceFault::Order => OrderError::bad_input(told),
    }
}
