//! Metadata that leads to kept content: which of a transaction's blocks do, and what lies at their
//! homes meanwhile.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use manylogs::{HomeForm, Volume};
use manylogs_block::{BlockDevice, Extent, Payload, narrow};
use manylogs_ext4::{BlockNo, Closed, Error, Ext4, Leads, Run};
use manylogs_logstore::Class;
use manylogs_plant::{Bug, is};

use crate::sink::{BLOCK_SECTORS, sectors_of};

/// What a mount knows of such metadata; nothing before versions are kept.
#[derive(Debug, Default)]
pub(crate) struct Leading(RefCell<Option<Rc<Leads>>>);

/// The blocks that `extent` touches.
pub(crate) fn blocks_of(extent: Extent) -> Run {
    let start = extent.start.0 / BLOCK_SECTORS;
    let end = extent.end().0.div_ceil(BLOCK_SECTORS);
    Run { start: BlockNo(start), blocks: narrow(end - start) }
}

impl Leading {
    /// Learns where the file system of `volume` has such metadata, and tells the volume.
    ///
    /// # Errors
    /// Those of the device, and if the file system cannot be understood.
    pub(crate) async fn learn(&self, volume: &Volume) -> Result<(), Error> {
        if self.0.borrow().is_none() {
            let through: Rc<dyn BlockDevice> = Rc::new(volume.clone());
            let leads = Rc::new(Ext4::leads_through(&through).await?);
            volume.set_home_form(Rc::new(Form(Rc::clone(&leads))));
            *self.0.borrow_mut() = Some(leads);
        }
        Ok(())
    }

    /// The sectors of a block that go into the record if the sectors `changed` have changed.
    pub(crate) fn whole(
        &self,
        block: BlockNo,
        bytes: &[u8],
        changed: Range<usize>,
    ) -> Range<usize> {
        match &*self.0.borrow() {
            Some(leads) if !is(Bug::DurableLeafInPart) => leads.whole(block, bytes, changed),
            _ => changed,
        }
    }

    /// The class of metadata in a transaction. It leads to kept content if it maps a block that
    /// the volume keeps, or whose content the transaction has.
    pub(crate) fn class_of(
        &self,
        extent: Extent,
        payload: &Payload,
        volume: &Volume,
        transaction: &Closed,
    ) -> Class {
        let found = self.0.borrow();
        let Some(leads) = found.as_ref().filter(|_| !is(Bug::DurableLeadsUnmarked)) else {
            return Class::Metadata;
        };
        let Some(bytes) = payload.to_bytes() else { return Class::Metadata };
        let is_kept = |run: Run| {
            let range = BlockNo(run.range().start)..BlockNo(run.range().end);
            let mut blocks = transaction.blocks.range(range);
            let has = blocks.any(|(_, logged)| logged.kind.needs_no_place());
            let kept = has || !volume.kept(sectors_of(run)).is_empty();
            if kept { vec![run] } else { Vec::new() }
        };
        match leads.home_form(extent, &bytes, &is_kept) {
            Some(_) => Class::Leading,
            None => Class::Metadata,
        }
    }
}

/// The form at home.
#[derive(Debug)]
struct Form(Rc<Leads>);

impl HomeForm for Form {
    fn home_form(
        &self,
        extent: Extent,
        content: &Payload,
        not_home: &dyn Fn(Extent) -> Vec<Extent>,
    ) -> Option<Payload> {
        let bytes = content.to_bytes()?;
        let of_run = |run: Run| not_home(sectors_of(run)).into_iter().map(blocks_of).collect();
        self.0.home_form(extent, &bytes, &of_run).map(Payload::bytes)
    }
}
