use manylogs_block::{Extent, MemoryDevice, Nanos, RequestKind, all_done};
use manylogs_filters::{Delay, Trace};
use manylogs_sim::{Sim, TaskOrder};

use super::*;
use crate::members::Pace;

type Member = Rc<Trace<MemoryDevice>>;

fn members(count: usize) -> Vec<Member> {
    (0..count).map(|_| Rc::new(Trace::new(MemoryDevice::new(Sectors(1024))))).collect()
}

fn array(sim: &Sim, node: manylogs_sim::NodeId, of: &[Member], gone: &[usize]) -> Parity {
    let devices = of.iter().map(|member| Rc::clone(member) as Rc<_>).collect();
    let parity = if of.len() > 5 { 2 } else { 1 };
    let missing: Vec<bool> = (0..of.len()).map(|at| gone.contains(&at)).collect();
    let known = Members::with_parity(&missing, parity, false);
    Parity::new(sim.handle(node), devices, parity, Sectors(128), known)
}

fn write(extent: Extent, tag: u64) -> Request {
    Request::write_fua(extent, Payload::tags(tag, extent.len))
}

/// Number of reads and writes of all members.
fn counts(members: &[Member]) -> (u64, u64) {
    let of = |kind| members.iter().map(|member| member.count(kind).requests).sum();
    (of(RequestKind::Read), of(RequestKind::Write))
}

#[test]
fn what_was_written_is_read_whichever_members_are_missing() {
    for (count, gone) in
        [(4, vec![0]), (4, vec![3]), (8, vec![0, 1]), (8, vec![2, 7]), (8, vec![5])]
    {
        let (sim, members) = (Sim::new(3, TaskOrder::Shuffled), members(count));
        let node = sim.node();
        let (whole, degraded) =
            (array(&sim, node, &members, &[]), array(&sim, node, &members, &gone));
        sim.block_on(node, async move {
            let all = Extent::new(0, 128 * 6 * (count as u64 - 1));
            whole.submit(write(all, 1)).await.unwrap();
            let mut expected = vec![0; usize::try_from(all.len.0).unwrap()];
            expected.iter_mut().zip(1..).for_each(|(slot, tag)| *slot = tag);
            // Parts of pages, rows and stripes, with all members and without some.
            let parts = [(3, 2), (8, 8), (120, 40), (384, 384), (700, 1000), (1, 126), (2000, 24)];
            for (device, from) in [(&whole, 10_000), (&degraded, 50_000)] {
                for ((start, len), tag) in parts.into_iter().zip((from..).step_by(2000)) {
                    device.submit(write(Extent::new(start, len), tag)).await.unwrap();
                    for at in start..start + len {
                        expected[usize::try_from(at).unwrap()] = tag + at - start;
                    }
                }
            }
            let read = degraded.submit(Request::Read { extent: all }).await.unwrap();
            for (at, (sector, tag)) in read.sectors().zip(&expected).enumerate() {
                assert_eq!(
                    sector,
                    Some(manylogs_block::Sector::Tag(*tag)),
                    "{count} {gone:?} {at}"
                );
            }
        });
    }
}

#[test]
fn rows_need_no_reads_if_they_are_written_together() {
    for (count, columns) in [(4, 3_u64), (8, 6)] {
        let (sim, members) = (Sim::new(1, TaskOrder::Fifo), members(count));
        let node = sim.node();
        let device = array(&sim, node, &members, &[]);
        sim.block_on(node, async move {
            // Four rows: 16 KiB a chunk apart.
            let write = |column| write(Extent::new(128 * column, 32), 100 * column + 1);
            let parts: Vec<_> = (0..columns).map(|column| device.submit(write(column))).collect();
            all_done(parts).await.unwrap();
        });
        assert_eq!(counts(&members), (0, count as u64), "each member has one write");
    }
}

#[test]
fn a_page_alone_costs_what_it_costs_with_md() {
    for (count, each) in [(4, 2), (8, 3)] {
        let (sim, members) = (Sim::new(1, TaskOrder::Fifo), members(count));
        let node = sim.node();
        let device = array(&sim, node, &members, &[]);
        sim.block_on(node, async move {
            device.submit(write(Extent::new(8, 8), 1)).await.unwrap();
        });
        assert_eq!(counts(&members), (each, if count == 4 { 2 } else { 3 }));
    }
}

#[test]
fn a_row_that_is_torn_takes_its_missing_member_along() {
    let (sim, members) = (Sim::new(1, TaskOrder::Fifo), members(4));
    let node = sim.node();
    let (whole, degraded) = (array(&sim, node, &members, &[]), array(&sim, node, &members, &[1]));
    let first = Rc::clone(&members[0]);
    sim.block_on(node, async move {
        whole.submit(write(Extent::new(0, 384), 1)).await.unwrap();
        // A crash in which the first member's page of a row arrives and its parity does not.
        first.submit(write(Extent::new(0, 8), 900)).await.unwrap();
        let read = |at| degraded.submit(Request::Read { extent: Extent::new(at, 8) });
        let beside = read(128).await.unwrap();
        assert_ne!(beside, Payload::tags(129, Sectors(8)), "nobody was writing it");
        assert_eq!(read(136).await.unwrap(), Payload::tags(137, Sectors(8)), "the next row");
        // Writing the row as a whole mends it.
        let parts = [0, 128, 256].map(|at| degraded.submit(write(Extent::new(at, 8), 2000 + at)));
        all_done(parts).await.unwrap();
        assert_eq!(read(128).await.unwrap(), Payload::tags(2128, Sectors(8)));
    });
}

/// A drive that fails all requests after the first ones.
struct Leaving {
    below: MemoryDevice,
    left: Cell<u64>,
}

impl BlockDevice for Leaving {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        match self.left.get().checked_sub(1) {
            None => Completion::ready(Err(IoError::Gone)),
            Some(left) => {
                self.left.set(left);
                self.below.submit(request)
            }
        }
    }
}

#[test]
fn a_member_that_fails_is_done_without_and_no_content_is_lost() {
    // How many requests the member carries out before it fails all: reads and writes are hit.
    for (count, leaves) in [(4, 0), (4, 1), (4, 2), (4, 3), (8, 0), (8, 1), (8, 2), (8, 3)] {
        let sim = Sim::new(5, TaskOrder::Shuffled);
        let node = sim.node();
        let member = |at: usize| Leaving {
            below: MemoryDevice::new(Sectors(1024)),
            left: Cell::new(if at == 1 { leaves } else { u64::MAX }),
        };
        let devices = (0..count).map(|at| Rc::new(member(at)) as Rc<_>).collect();
        let parity = if count > 5 { 2 } else { 1 };
        let known = Members::with_parity(&vec![false; count], parity, false);
        let device = Parity::new(sim.handle(node), devices, parity, Sectors(128), known.clone());
        sim.block_on(node, async move {
            let all = Extent::new(0, 128 * 6 * (count as u64 - 1));
            device.submit(write(all, 1)).await.unwrap();
            let mut expected: Vec<u64> = (1..=all.len.0).collect();
            for (start, len, tag) in [(3, 2, 10_000), (120, 40, 20_000), (384, 384, 30_000)] {
                device.submit(write(Extent::new(start, len), tag)).await.unwrap();
                for at in 0..len {
                    expected[usize::try_from(start + at).unwrap()] = tag + at;
                }
            }
            device.submit(Request::Flush).await.unwrap();
            let read = device.submit(Request::Read { extent: all }).await.unwrap();
            for (sector, tag) in read.sectors().zip(&expected) {
                assert_eq!(sector, Some(manylogs_block::Sector::Tag(*tag)), "{count}, {leaves}");
            }
            assert!(known.is_lost(1));
        });
    }
}

#[test]
fn a_resynchronisation_makes_parity_fit_beside_writes() {
    for seed in 0..20 {
        let (sim, members) = (Sim::new(seed, TaskOrder::Shuffled), members(4));
        let node = sim.node();
        let slow = |member: &Member| {
            Rc::new(Delay::new(sim.handle(node), Rc::clone(member), Nanos::from_micros(50)))
        };
        let devices = members.iter().map(|member| slow(member) as Rc<_>).collect();
        let known = Members::with_parity(&[false; 4], 1, true);
        let device = Parity::new(sim.handle(node), devices, 1, Sectors(128), known.clone());
        let torn = Rc::clone(&members[2]);
        let ended = sim.handle(node);
        let array = device.clone();
        sim.block_on(node, async move {
            torn.submit(write(Extent::new(40, 300), 7)).await.unwrap();
            let pace = Pace { window: Sectors(32), pause: Nanos::from_micros(20) };
            let resync = array.clone();
            ended.spawn(async move { resync.resync(pace).await });
            for tag in 0..60 {
                let at = (tag * 56) % 900;
                array.submit(write(Extent::new(at, 24), 1000 * tag)).await.unwrap();
            }
            while known.behind().is_some() {
                ended.sleep(Nanos::from_micros(100)).await;
            }
        });
        let whole = Extent::new(0, 1024);
        let content = |member: &Member| member.below().media().read(whole);
        let contents: Vec<Payload> = members.iter().map(content).collect();
        assert_eq!(parity_of(0, &contents, whole.len), Payload::zeroes(whole.len), "seed {seed}");
    }
}
