//! The places of a chain's links, as the engine sees them: one device each. Links come and go while
//! the chain is used, so a place may be empty.

use std::cell::RefCell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Copies, Extent, Extents, Handle, IoError, Request,
    Sectors,
};

use crate::keeper::Keeper;
use crate::pair::Pair;
use crate::roster::LINKS;

/// What an empty place can do: nothing.
const NONE: Capabilities = Capabilities {
    capacity: Sectors(0),
    physical_sector: Sectors(1),
    untorn: Sectors(1),
    rotational: false,
    volatile_cache: false,
    native_fua: true,
    discard: false,
    fast_zero: false,
};

/// What is in a place.
#[derive(Clone)]
pub(crate) enum Link {
    /// A single drive.
    Drive(Rc<dyn BlockDevice>),
    /// A mirrored pair.
    Pair(Pair),
}

impl Link {
    /// The link of the current drives in a place; `None` if it has none. `apart` says that the
    /// halves of a pair may differ.
    pub(crate) fn of(
        runtime: &Handle,
        keeper: &Rc<Keeper>,
        place: usize,
        apart: bool,
    ) -> Option<Self> {
        let first = keeper.current(place).into_iter().next()?;
        Some(match first.label.halves {
            1 => Self::Drive(first.device),
            _ => Self::Pair(Pair::new(runtime.clone(), Rc::clone(keeper), place, apart)),
        })
    }

    fn device(&self) -> Rc<dyn BlockDevice> {
        match self {
            Self::Drive(drive) => Rc::clone(drive),
            Self::Pair(pair) => Rc::new(pair.clone()),
        }
    }
}

/// A link, and the device that it is.
type Held = (Link, Rc<dyn BlockDevice>);

/// A place. One that is empty answers as a drive that is gone. Clones are the same place.
#[derive(Clone, Default)]
pub(crate) struct Place(Rc<RefCell<Option<Held>>>);

impl Place {
    /// Puts a link into the place; `None` empties it.
    pub(crate) fn put(&self, link: Option<Link>) {
        *self.0.borrow_mut() = link.map(|link| {
            let device = link.device();
            (link, device)
        });
    }

    fn device(&self) -> Option<Rc<dyn BlockDevice>> {
        self.0.borrow().as_ref().map(|(_, device)| Rc::clone(device))
    }
}

impl BlockDevice for Place {
    fn capabilities(&self) -> Capabilities {
        self.device().map_or(NONE, |device| device.capabilities())
    }

    fn submit(&self, request: Request) -> Completion {
        match self.device() {
            Some(device) => device.submit(request),
            None => Completion::ready(Err(IoError::Gone)),
        }
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        match self.device() {
            Some(device) => device.extents(within),
            None => Completion::ready(Err(IoError::Gone)),
        }
    }

    fn is_reset_first(&self) -> bool {
        self.device().is_some_and(|device| device.is_reset_first())
    }

    fn reset(&self, extent: Extent) -> Completion {
        match self.device() {
            Some(device) => device.reset(extent),
            None => Completion::ready(Err(IoError::Gone)),
        }
    }

    fn has_copies(&self) -> bool {
        self.device().is_some_and(|device| device.has_copies())
    }

    fn copies(&self) -> Copies {
        self.device().map(|device| device.copies()).unwrap_or_default()
    }
}

/// All places that a chain may have.
#[derive(Clone)]
pub(crate) struct Places([Place; LINKS]);

impl Places {
    /// Places with the links that `link` names.
    pub(crate) fn of(link: impl Fn(usize) -> Option<Link>) -> Self {
        let places: [Place; LINKS] = std::array::from_fn(|_| Place::default());
        for (number, place) in places.iter().enumerate() {
            place.put(link(number));
        }
        Self(places)
    }

    /// See [`Place::put`].
    pub(crate) fn put(&self, place: usize, link: Option<Link>) {
        if let Some(place) = self.0.get(place) {
            place.put(link);
        }
    }

    /// The mirrored link in a place, if there is one.
    pub(crate) fn pair(&self, place: usize) -> Option<Pair> {
        match self.0.get(place)?.0.borrow().as_ref()? {
            (Link::Pair(pair), _) => Some(pair.clone()),
            (Link::Drive(_), _) => None,
        }
    }

    /// All mirrored links.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = Pair> {
        (0..LINKS).filter_map(|place| self.pair(place))
    }

    /// The devices, by the numbers of their places.
    pub(crate) fn devices(&self) -> Vec<Rc<dyn BlockDevice>> {
        self.0.iter().map(|place| Rc::new(place.clone()) as Rc<dyn BlockDevice>).collect()
    }
}
