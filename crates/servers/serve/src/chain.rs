//! A chain of drives served instead of a volume: finds its members, opens them, and serves it.

mod cache;
mod halves;
mod links;
mod members;
mod sleep;

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use manylogs::PhaseProbe;
use manylogs_block::{BlockDevice, Handle, Nanos, Sectors};
use manylogs_gecko::{Chain, ChainError, ChainSettings};
use manylogs_operate::control::{Answer, Order, OrderError};
use manylogs_operate::status::{ChainStatus, Status, id_text};
use manylogs_operate::{Closing, Obeying, ServedSystem, Subject};

use crate::engine::{EngineOptions, Left, ServeError, Serving};
use crate::server::Exported;
use crate::stack::{Stack, StackOptions};

use cache::CacheSsd;
pub use halves::{ChainView, is_member, place_of, refuse_member};
pub use links::{LossTold, link_of, refuse_link_member};
pub use members::{Member, MembersError, identity, is_same};

/// The chain that an engine serves.
#[derive(Clone, Debug)]
pub struct ServedChain {
    /// Id of the chain.
    pub id: [u8; 16],
    /// Size of the exported device.
    pub export: Sectors,
    /// Length of the segments of all links.
    pub segments: Sectors,
    /// Drives of each link: two if they are mirrored, else one.
    pub halves: usize,
    /// Its drives, in the order of the chain.
    pub members: Vec<PathBuf>,
    /// Settings for opening it.
    pub settings: ChainSettings,
    /// The SSD of its tail cache, if one was named. Otherwise one is looked for whose label names
    /// the chain, if the chain's labels say that there is one, and the cache has memory.
    pub cache: Option<PathBuf>,
    /// Whether the chain's labels say that it has an SSD for its tail cache.
    pub has_cache: bool,
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
        let (id, export, halves) = (first.label.chain, first.label.export, first.label.halves);
        let newest = members.iter().max_by_key(|member| member.label.age());
        let label = newest.unwrap_or(first).label;
        let links = label.roster.in_use().count() as u64;
        let segments = Sectors(label.segments * label.segment.0 * links);
        let (cache, has_cache) = (None, label.roster.has_cache);
        let members = members.into_iter().map(|member| member.path).collect();
        Ok(Some(Self { id, export, segments, halves, members, settings, cache, has_cache }))
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

/// How often the server looks whether the kernel has told what a new drive lies on, and how often
/// before it gives up: the drive may lie on a device that does not answer.
const LOOK: Nanos = Nanos::from_millis(10);
const LOOKS: u32 = 1000;

/// An open chain as its operator sees it. Clones are the same chain.
#[derive(Clone, Debug)]
struct OpenChain {
    chain: Chain,
    /// Paths of the drives, also of those that joined later.
    members: Rc<RefCell<Vec<PathBuf>>>,
    cache: Option<CacheSsd>,
    runtime: Handle,
    /// Opens further drives; the server's thread owns it.
    stack: Weak<Stack>,
    options: StackOptions,
}

impl OpenChain {
    async fn replace(self, old: String, new: PathBuf) -> Answer {
        let refuse = |told: String| OrderError::bad_input(told);
        self.refuse_served(&new).await?;
        let place = {
            let (halves, paths) = (self.chain.halves(), self.members.borrow());
            if halves.is_empty() {
                return Err(refuse("the chain is not mirrored: it has no half to replace".into()));
            }
            refuse_member(&ChainView { halves: &halves, paths: &paths }, &new).map_err(refuse)?;
            place_of(&old, &halves, &paths).map_err(refuse)?
        };
        let stack = self.stack.upgrade().ok_or_else(|| OrderError::new("the server ends"))?;
        let drive = stack.beside(&new, &self.options).map_err(OrderError::in_use)?;
        drop(stack);
        let given = {
            let mut paths = self.members.borrow_mut();
            paths.push(new.clone());
            paths.len() - 1
        };
        let copied = self.chain.replace(place, (drive, given)).await;
        let copied = copied.map_err(|error| halves::refusal(&new, &error))?;
        let bytes = copied.content.bytes();
        Ok(serde_json::json!({ "pair": place.0, "half": place.1, "copied_bytes": bytes }))
    }

    /// Refuses a drive on a device that may be this chain: the server would wait for itself. Only
    /// another thread may look at it.
    async fn refuse_served(&self, new: &Path) -> Result<(), OrderError> {
        let (done, below) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (ends, found, path) = (Arc::clone(&done), Arc::clone(&below), new.to_owned());
        std::thread::spawn(move || {
            let below = crate::lies_on::served_below(&path);
            *found.lock().unwrap_or_else(PoisonError::into_inner) = below;
            ends.store(true, Ordering::Release);
        });
        let mut looks = 0;
        while !done.load(Ordering::Acquire) {
            looks += 1;
            if looks > LOOKS {
                let told = format!("{}: nothing tells what it lies on", new.display());
                return Err(OrderError::new(told));
            }
            self.runtime.sleep(LOOK).await;
        }
        let below = below.lock().unwrap_or_else(PoisonError::into_inner).take();
        match below {
            Some(below) => Err(OrderError::bad_input(format!(
                "{} lies on {below}, which may be this chain: name a drive that no server in user \
                 space serves",
                new.display()
            ))),
            None => Ok(()),
        }
    }
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
        let paths = self.members.borrow();
        let halves = halves::status(&self.chain, &paths);
        let links = links::status(&self.chain, &paths);
        let members = match halves.is_empty() {
            true => links.iter().flat_map(|link| link.paths.clone()).collect(),
            false => halves.iter().filter_map(|half| half.path.clone()).collect(),
        };
        status.chain = Some(ChainStatus {
            id: id_text(&self.chain.id()),
            members,
            halves,
            links,
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
            cache_bytes: figures.cache_bytes,
            cache_bytes_max: self.chain.cache_memory().bytes(),
            tail_hits: figures.tail_hits,
            tail_misses: figures.tail_misses,
            body_hits: figures.body_hits,
            flash: self.cache.as_ref().map(|cache| cache.status(&self.chain)),
        });
    }

    fn obey(&self, order: Order) -> Obeying {
        let chain = self.clone();
        Box::pin(async move {
            match order {
                Order::ReplaceMember { old, new } => chain.replace(old, new).await,
                Order::AddMember { new } => chain.add(new).await,
                Order::RemoveMember { old, accept_loss } => chain.remove(old, accept_loss).await,
                _ => Err(OrderError::bad_input("a chain of drives knows no such order")),
            }
        })
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
    let stack = Rc::new(stack);
    let settings = sleep::with_profiles(chain.settings, &chain.members);
    let opening = Chain::open(stack.runtime(), drives, settings);
    let opened = stack.run(opening);
    let opened = opened.map_err(|error| ChainRefused::new(&chain.members, error))?;
    let cache = CacheSsd::of(&stack, &options.stack, &opened, chain)?;
    let device: Rc<dyn BlockDevice> = Rc::new(opened.clone());
    let members = Rc::new(RefCell::new(chain.members.clone()));
    if settings.sleep.is_some() {
        sleep::log_wakes(&stack.runtime(), &opened, &members);
    }
    let system = OpenChain {
        chain: opened,
        members,
        cache,
        runtime: stack.runtime(),
        stack: Rc::downgrade(&stack),
        options: options.stack.clone(),
    };
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
