//! Room for transactions, on a small volume in virtual time.

use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs::VolumeConfig;
use manylogs_block::MemoryDevice;
use manylogs_ext4::{Memory, Part, Tid, Timestamp};
use manylogs_sim::{Sim, TaskOrder};

use super::*;
use bytes::Bytes;

fn sink_of(volume: &Volume) -> NearSink {
    let (probe, granularity) = (PhaseProbe::default(), Granularity::default());
    let logging = Logging { granularity, keeps_metadata: false };
    NearSink::new(volume.clone(), probe, logging, &Memory::default())
}

/// A transaction that changes one block and frees as many runs as allowed, all of them logged.
fn freeing(sink: &NearSink) -> Closed {
    let freed: Vec<Run> = (1..=sink.most_freed() as u64)
        .map(|number| Run { start: BlockNo(2 * number), blocks: 1 })
        .collect();
    let bytes = Bytes::from(vec![1; BLOCK_BYTES]);
    let logged = Logged { bytes, before: None, kind: LoggedKind::Metadata, is_renewed: false };
    Closed {
        tid: Tid(1),
        blocks: BTreeMap::from([(BlockNo(0), logged)]),
        revoked: freed.iter().map(|run| run.start).collect(),
        freed,
        data_written: false,
        closed_at: Timestamp::default(),
        closed_by_runtime: Default::default(),
        held: Memory::default().hold(Part::Journal, 0),
    }
}

/// Appends transactions as long as `has_room` says that there is room. Returns how many had to wait
/// for room all the same.
fn waits() -> u64 {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    sim.block_on(node, async move {
        let device = Rc::new(MemoryDevice::new(Sectors(1 << 16)));
        let config = VolumeConfig { log: Sectors(4096), ..VolumeConfig::default() };
        let volume = Volume::create(runtime, device, &config).await.unwrap();
        let sink = sink_of(&volume);
        let transaction = freeing(&sink);
        let mut under_way = Vec::new();
        while sink.has_room(1) && volume.stats().starved_writes == 0 {
            under_way.push(volume.append(sink.batch_of(&transaction)));
        }
        assert!(under_way.len() > 10);
        let waits = volume.stats().starved_writes;
        for appended in under_way {
            appended.await.unwrap();
        }
        volume.close().await.unwrap();
        waits
    })
}

#[test]
fn a_transaction_that_has_room_waits_for_none_whatever_it_frees() {
    assert_eq!(waits(), 0);
}

/// Neighbouring blocks of content and of metadata become separate entries, because settings treat
/// them differently.
#[test]
fn neighbours_of_one_class_alone_are_one_entry() {
    use Class::{Data, DurabilityOnly};
    use LoggedKind::{Content, Metadata};

    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    let classes = sim.block_on(node, async move {
        let device = Rc::new(MemoryDevice::new(Sectors(1 << 16)));
        let volume = Volume::create(runtime, device, &VolumeConfig::default()).await.unwrap();
        let sink = sink_of(&volume);
        let kinds = [
            (2, Metadata),
            (3, Metadata),
            (4, Content),
            (5, Content),
            (6, LoggedKind::DurableContent { uid: 7 }),
            (7, Metadata),
            (9, Metadata),
        ];
        let bytes = Bytes::from(vec![1; BLOCK_BYTES]);
        let logged = |(block, kind)| {
            (BlockNo(block), Logged { bytes: bytes.clone(), before: None, kind, is_renewed: false })
        };
        let blocks = kinds.map(logged).into();
        let transaction = Closed { blocks, freed: Vec::new(), ..freeing(&sink) };
        let entries = sink.batch_of(&transaction).entries;
        volume.close().await.unwrap();
        entries.iter().map(|entry| (entry.class, entry.extent.len.0)).collect::<Vec<_>>()
    });
    let metadata = |sectors| (Class::Metadata, sectors);
    let content = [(Data, 16), (DurabilityOnly, 8)];
    assert_eq!(classes, [&[metadata(16)][..], &content, &[metadata(8), metadata(8)]].concat());
}

#[cfg(feature = "plant")]
#[test]
fn room_that_does_not_count_what_is_freed_is_noticed() {
    manylogs_plant::plant(Some(Bug::NearRoomWithoutFreed));
    let noticed = waits() > 0;
    manylogs_plant::plant(None);
    assert!(noticed);
}
