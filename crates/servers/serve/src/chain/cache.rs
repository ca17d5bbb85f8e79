//! The SSD of a chain's tail cache, as a server uses it.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use manylogs_block::BlockDevice;
use manylogs_gecko::{CacheError, CacheOptions, Chain, ChainError};
use manylogs_operate::log::{Level, line};
use manylogs_operate::status::FlashStatus;
use manylogs_storage::{Contents, survey};

use super::members::cache_of;
use super::{ChainRefused, ServedChain};
use crate::stack::{Stack, StackOptions};

/// Why a chain that has an SSD is served without it.
const MISSING: &str = "no disk of this machine and no file beside the drives is the SSD of the \
                       chain's tail cache: attach it, or name another one (--cache SSD)";

/// The SSD that was named, and why it is not used, if so.
#[derive(Clone, Debug)]
pub(super) struct CacheSsd {
    path: PathBuf,
    problem: Option<String>,
}

impl CacheSsd {
    /// The SSD that `served` names or that is found; `None` if the chain shall have none.
    ///
    /// # Errors
    /// See [`CacheSsd::attach`].
    pub(super) fn of(
        stack: &Stack,
        options: &StackOptions,
        chain: &Chain,
        served: &ServedChain,
    ) -> Result<Option<Self>, ChainRefused> {
        let is_wanted = served.has_cache && served.settings.cache.0 > 0;
        let path = match (&served.cache, served.members.first()) {
            (Some(named), _) => named.clone(),
            (None, Some(first)) if is_wanted => {
                let Some(found) = cache_of(served.id, first) else {
                    return Ok(Some(Self::without(Path::new(""), &MISSING)));
                };
                // Nobody named it, so it is no reason to refuse the chain.
                let attached = Self::attach(stack, options, chain, &found);
                let refused = |refused: ChainRefused| Self::without(&found, &refused.error);
                return Ok(Some(attached.unwrap_or_else(refused)));
            }
            _ => return Ok(None),
        };
        Self::attach(stack, options, chain, &path).map(Some)
    }

    /// Gives `chain` the SSD at `path`. One that holds nothing becomes its cache. One that is not
    /// there, or fails, costs hits alone: the chain is served without it, and the log and the
    /// status say why.
    ///
    /// # Errors
    /// If it holds something else, or the cache of another chain.
    pub(super) fn attach(
        stack: &Stack,
        options: &StackOptions,
        chain: &Chain,
        path: &Path,
    ) -> Result<Self, ChainRefused> {
        // Asked before it is opened: then nobody else may read it.
        let holds = match survey(path) {
            Ok(holds) => holds,
            Err(error) => return Ok(Self::without(path, &error)),
        };
        let device = match stack.beside(path, options) {
            Ok(device) => device,
            Err(error) => return Ok(Self::without(path, &error)),
        };
        match stack.run(attached(chain.clone(), device, holds)) {
            Ok(()) => Ok(Self { path: path.to_owned(), problem: None }),
            Err(error @ (CacheError::Io(_) | CacheError::Silent)) => {
                Ok(Self::without(path, &error))
            }
            Err(error) => {
                Err(ChainRefused { path: path.to_owned(), error: ChainError::Cache(error) })
            }
        }
    }

    /// The SSD at `path`, which is empty if none was found, cannot be used. The log says so, as a
    /// path may have a typing error.
    fn without(path: &Path, problem: &dyn Display) -> Self {
        let message = format!("the chain is served without its SSD: {problem}");
        let known = Some(path).filter(|path| !path.as_os_str().is_empty());
        line(Level::Warning, known, &message, &[]);
        Self { path: path.to_owned(), problem: Some(problem.to_string()) }
    }

    pub(super) fn status(&self, chain: &Chain) -> FlashStatus {
        let figures = chain.flash().unwrap_or_default();
        FlashStatus {
            path: self.path.display().to_string(),
            problem: self.problem.clone(),
            size_bytes: figures.size.bytes(),
            held_bytes: figures.held.bytes(),
            written_bytes: figures.written.bytes(),
            written_ever_bytes: figures.written_ever.bytes(),
            hits: figures.hits,
            faults: figures.faults,
            given_up: figures.is_given_up,
            silent: figures.is_silent,
        }
    }
}

async fn attached(
    chain: Chain,
    device: Rc<dyn BlockDevice>,
    holds: Contents,
) -> Result<(), CacheError> {
    match chain.attach_cache(Rc::clone(&device)).await {
        Err(CacheError::NotACache) if holds == Contents::Empty => {
            chain.format_cache(&device, CacheOptions::default()).await?;
            chain.attach_cache(device).await
        }
        Err(CacheError::NotACache) => Err(CacheError::Holds { what: holds.to_string() }),
        attached => attached,
    }
}
