//! What is measured: a chain, or what it is compared with, on modelled drives.

use std::rc::Rc;

use manylogs_array::{Level, Shape, assemble};
use manylogs_block::{BlockDevice, Extent, Handle, Sectors};
use manylogs_disk::device::ModelledDrive;
use manylogs_filters::Part;
use manylogs_gecko::{Chain, ChainError, ChainFigures, ChainOptions, ChainSettings};
use manylogs_sim::{NodeId, Sim};

use super::case::{ChainCase, Layout};

/// Length of a chunk of RAID-0: that of md.
const CHUNK: Sectors = Sectors(1024);

/// A chain, a log over RAID-0, or RAID-0 alone.
pub(super) struct Subject {
    /// What clients use.
    pub(super) device: Rc<dyn BlockDevice>,
    /// The log, if it is one.
    pub(super) chain: Option<Chain>,
    /// Length of all drives, copies not counted.
    pub(super) raw: Sectors,
    /// Blocks of 4 KiB that clients may use.
    pub(super) blocks: u64,
}

impl Subject {
    /// What `case` has, on drives that belong to `node`.
    pub(super) fn new(
        sim: &Sim,
        host: NodeId,
        node: NodeId,
        case: &ChainCase,
    ) -> Result<Self, ChainError> {
        let runtime = sim.handle(host);
        let links = links(case, &runtime, &sim.handle(node));
        let raw = Sectors(case.drive.profile.capacity().0 * case.links as u64);
        if case.layout == Layout::InPlace {
            let device = array(&runtime, links);
            let blocks = device.capabilities().capacity.0 / 8;
            return Ok(Self { device, chain: None, raw, blocks });
        }
        let links = match case.layout {
            Layout::Log => parts(&array(&runtime, links), case.links as u64),
            _ => links,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of capacity")]
        let export = case.export.map(|share| Sectors((raw.0 as f64 * share) as u64 / 8 * 8));
        let summaries = case.summaries && case.layout == Layout::Chain;
        let options = ChainOptions { segment: case.segment, export, mirror: false, summaries };
        let (cleaning, cache) = (case.cleaning, case.cache);
        let settings = ChainSettings { cleaning, cache, ..ChainSettings::default() };
        let chain = sim.block_on(host, Chain::create(runtime, links, options, settings))?;
        let blocks = chain.capabilities().capacity.0 / 8;
        Ok(Self { device: Rc::new(chain.clone()), chain: Some(chain), raw, blocks })
    }

    /// What the log did; nothing, if there is none.
    pub(super) fn figures(&self) -> ChainFigures {
        self.chain.as_ref().map(Chain::figures).unwrap_or_default()
    }
}

/// The drives, or the pairs.
fn links(case: &ChainCase, host: &Handle, node: &Handle) -> Vec<Rc<dyn BlockDevice>> {
    let drive = |number: u64| -> Rc<dyn BlockDevice> {
        let options = case.drive.options(case.seed ^ number << 32);
        Rc::new(ModelledDrive::new(node.clone(), &case.drive.profile, &options))
    };
    let link = |number: u64| match case.mirrored {
        true => {
            let pair = Shape { chunk: CHUNK, known: false, ..Shape::new(Level::Raid1, 2) };
            assemble(host, &pair, vec![drive(2 * number), drive(2 * number + 1)])
        }
        false => drive(number),
    };
    (0..case.links as u64).map(link).collect()
}

/// RAID-0 of the drives of `case`.
pub(super) fn raid_0(case: &ChainCase, host: &Handle, node: &Handle) -> Rc<dyn BlockDevice> {
    array(host, links(case, host, node))
}

/// RAID-0 of the links.
fn array(host: &Handle, links: Vec<Rc<dyn BlockDevice>>) -> Rc<dyn BlockDevice> {
    let members = manylogs_block::narrow(links.len() as u64);
    assemble(
        host,
        &Shape { chunk: CHUNK, known: false, ..Shape::new(Level::Raid0, members) },
        links,
    )
}

/// Equal parts of a device, which all of its drives have a share of.
fn parts(device: &Rc<dyn BlockDevice>, count: u64) -> Vec<Rc<dyn BlockDevice>> {
    let len = device.capabilities().capacity.0 / count / CHUNK.0 * CHUNK.0;
    let part = |number: u64| -> Rc<dyn BlockDevice> {
        Rc::new(Part::new(Rc::clone(device), Extent::new(number * len, len)))
    };
    (0..count).map(part).collect()
}
