//! The links of a served chain, as its operator sees them, and orders that add and remove them.

use std::path::{Path, PathBuf};

use manylogs_block::{Extent, Sectors};
use manylogs_gecko::{Chain, LinkError, LinkState, Loss, OnLoss, ReplaceFault};
use manylogs_operate::control::{Answer, OrderError};
use manylogs_operate::status::LinkStatus;
use serde::{Deserialize, Serialize};

use super::OpenChain;
use super::halves::is_member;
use super::members::is_same;

/// Ranges that an answer names.
const TOLD_MOST: usize = 1000;

/// What was lost with a link, as its operator is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossTold {
    /// The first ranges, at most a thousand: offset and length in bytes.
    pub ranges: Vec<(u64, u64)>,
    /// Number of ranges; if it is [`Loss::LISTED_MOST`], there may be more.
    pub count: u64,
    /// Length of all ranges.
    pub bytes: u64,
}

impl LossTold {
    /// Tells of `loss`.
    #[must_use]
    pub fn of(loss: &Loss) -> Self {
        let told = |range: &Extent| (Sectors(range.start.0).bytes(), range.len.bytes());
        let ranges = loss.ranges.iter().take(TOLD_MOST).map(told).collect();
        Self { ranges, count: loss.ranges.len() as u64, bytes: loss.sectors.bytes() }
    }
}

/// The links of a chain of which `paths` names the drives.
pub(super) fn status(chain: &Chain, paths: &[PathBuf]) -> Vec<LinkStatus> {
    let told = |state: &LinkState| {
        let of = state.given.iter().filter_map(|given| paths.get(*given));
        let left = state.leaving.unwrap_or_default();
        LinkStatus {
            link: state.link as u64,
            paths: of.map(|path| path.display().to_string()).collect(),
            leaving: state.leaving.is_some(),
            segments_left: left.segments,
            bytes_left: left.live.bytes(),
            lost: state.is_lost,
            problem: state.stopped.as_ref().map(LinkError::to_string),
        }
    };
    chain.links().iter().map(told).collect()
}

/// The place of the link that `old` names: `LINK`, counted from 1, or the path of a drive.
///
/// # Errors
/// If it names none. The error says what to do.
pub fn link_of(old: &str, links: &[LinkState], paths: &[PathBuf]) -> Result<usize, String> {
    let number = old.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let is_old = |given: &usize| {
        let path = paths.get(*given);
        path.is_some_and(|path| path.as_os_str() == old || is_same(path, old.as_ref()))
    };
    let is_it = |state: &&LinkState| {
        number == Some(state.link) || number.is_none() && state.given.iter().any(is_old)
    };
    links.iter().find(is_it).map(|state| state.link).ok_or_else(|| {
        format!(
            "{old} is no link that the chain has now: name it by a drive of it, or by its number \
             in manylogs member list"
        )
    })
}

/// Refuses a drive that is a member of the chain already.
///
/// # Errors
/// Says which one.
pub fn refuse_link_member(
    links: &[LinkState],
    paths: &[PathBuf],
    new: &Path,
) -> Result<(), String> {
    let mut used = links.iter().flat_map(|link| &link.given).filter_map(|given| paths.get(*given));
    match used.any(|path| path == new || is_same(path, new)) {
        true => Err(is_member(new)),
        false => Ok(()),
    }
}

fn refusal(error: &LinkError) -> OrderError {
    match error.fault() {
        ReplaceFault::Busy => OrderError::in_use(error.to_string()),
        ReplaceFault::Failure => OrderError::new(error.to_string()),
        ReplaceFault::Order => OrderError::bad_input(error.to_string()),
    }
}

impl OpenChain {
    pub(super) async fn add(self, new: Vec<PathBuf>) -> Answer {
        for (index, path) in new.iter().enumerate() {
            self.refuse_served(path).await?;
            refuse_link_member(&self.chain.links(), &self.members.borrow(), path)
                .map_err(OrderError::bad_input)?;
            if new[..index].iter().any(|other| is_same(other, path)) {
                let told = format!("{} is named twice: name two drives", path.display());
                return Err(OrderError::bad_input(told));
            }
        }
        let stack = self.stack.upgrade().ok_or_else(|| OrderError::new("the server ends"))?;
        let mut drives = Vec::new();
        for path in new {
            let drive = stack.beside(&path, &self.options).map_err(OrderError::in_use)?;
            let mut paths = self.members.borrow_mut();
            drives.push((drive, paths.len()));
            paths.push(path);
        }
        drop(stack);
        let link = self.chain.add_link(drives).await.map_err(|error| refusal(&error))?;
        Ok(serde_json::json!({ "link": link }))
    }

    pub(super) async fn remove(self, old: String, accept_loss: bool) -> Answer {
        let link = link_of(&old, &self.chain.links(), &self.members.borrow());
        let link = link.map_err(OrderError::bad_input)?;
        let on_loss = if accept_loss { OnLoss::Accept } else { OnLoss::Stop };
        let loss = self.chain.remove_link(link, on_loss).await.map_err(|error| refusal(&error))?;
        let told = LossTold::of(&loss);
        Ok(serde_json::json!({ "link": link, "loss": told }))
    }
}
