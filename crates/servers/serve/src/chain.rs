//! A chain of drives served instead of a volume: finds its members, opens them, and serves it.

mod members;

use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use manylogs::PhaseProbe;
use manylogs_block::{BlockDevice, Sectors};
use manylogs_gecko::{Chain, ChainError, ChainSettings};
use manylogs_operate::status::{ChainStatus, Status, id_text};
use manylogs_operate::{Closing, ServedSystem, Subject};

use crate::engine::{EngineOptions, Left, ServeError, Serving};
use crate::server::Exported;
use crate::stack::Stack;

pub use members::{Member, MembersError, identity};

/// The chain that an engine serves.
#[derive(Clone, Debug)]
pub struct ServedChain {
    /// Id of the chain.
    pub id: [u8; 16],
    /// Size of the exported device.
    pub export: Sectors,
    /// Its drives, in the order of the chain.
    pub members: Vec<PathBuf>,
    /// Settings for opening it.
    pub settings: ChainSettings,
}

impl ServedChain {
    /// Finds the chain of which `device` and `named` are members, with its other members; `None` if
    /// `device` belongs to no chain and no member was named.
    ///
    /// # Errors
    /// If members are missing, belong to another chain, or are found twice.
    pub fn of(
        device: &Path,
        named: &[PathBuf],
        settings: ChainSettings,
    ) -> Result<Option<Self>, MembersError> {
        // If the device is missing or cannot be read, opening it reports that later.
        if named.is_empty() && !matches!(Member::at(device), Ok(Some(_))) {
            return Ok(None);
        }
        let members = Member::all(device, named)?;
        let Some(first) = members.first() else { return Ok(None) };
        let (id, export) = (first.label.chain, first.label.export);
        let members = members.into_iter().map(|member| member.path).collect();
        Ok(Some(Self { id, export, members, settings }))
    }
}

/// Why a chain was not opened, with the drive at fault.
#[derive(Debug)]
pub struct ChainRefused {
    /// The drive at fault, or the first one.
    pub path: PathBuf,
    /// The reason.
    pub error: ChainError,
}

impl ChainRefused {
    /// The refusal for `error`; `members` are in the order in which they were opened.
    #[must_use]
    pub fn new(members: &[PathBuf], error: ChainError) -> Self {
        let at = error.drive().unwrap_or(0);
        let path = members.get(at).or(members.first()).cloned().unwrap_or_default();
        Self { path, error }
    }
}

impl fmt::Display for ChainRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for ChainRefused {}

/// An open chain as its operator sees it.
#[derive(Debug)]
struct OpenChain {
    chain: Chain,
    members: Vec<PathBuf>,
}

impl ServedSystem for OpenChain {
    fn kind(&self) -> &'static str {
        "a chain of drives"
    }

    fn id(&self) -> [u8; 16] {
        self.chain.id()
    }

    fn tell(&self, status: &mut Status) {
        let figures = self.chain.figures();
        status.chain = Some(ChainStatus {
            id: id_text(&self.chain.id()),
            members: self.members.iter().map(|path| path.display().to_string()).collect(),
            tail: self.chain.tail_drive() as u64,
            cleaning: self.chain.cleaning().name().to_owned(),
            read_only: self.chain.read_only().map(str::to_owned),
            written_bytes: figures.written.bytes(),
            renewed_bytes: figures.renewed.bytes(),
            appended_bytes: figures.appended.bytes(),
            emptied_segments: figures.emptied,
            hops: figures.hops,
            waited_writes: figures.waited,
            table_bytes: figures.table_bytes,
        });
    }

    fn close(&self) -> Closing {
        let chain = self.chain.clone();
        Box::pin(async move { chain.close().await })
    }
}

/// Opens the chain of `options` and serves it.
pub(crate) fn run(
    options: &EngineOptions,
    chain: &ServedChain,
    serving: Serving,
) -> Result<Left, ServeError> {
    let mut stack = Stack::open(&options.stack)?;
    let mut drives = vec![Rc::clone(&stack.device)];
    for path in chain.members.iter().skip(1) {
        drives.push(stack.beside(path, &options.stack)?);
    }
    stack.lock_as(chain.id)?;
    let opening = Chain::open(stack.runtime(), drives, chain.settings);
    let opened = stack.run(opening);
    let opened = opened.map_err(|error| ChainRefused::new(&chain.members, error))?;
    let device: Rc<dyn BlockDevice> = Rc::new(opened.clone());
    let system = OpenChain { chain: opened, members: chain.members.clone() };
    let subject = Subject {
        name: options.stack.path.display().to_string(),
        capacity: device.capabilities().capacity,
        drive: None,
        recognised: None,
        volume: None,
        system: Some(Rc::new(system)),
        probe: PhaseProbe::default(),
    };
    serving.serve(&stack.reactor, Exported { device, subject }, None)
}
