//! Volumes whose non-volatile RAM is missing or the wrong one.

use std::future::Future;
use std::rc::Rc;

use manylogs::{
    CreateOptions, DrainOptions, NvramError, OpenOptions, RecoveryReport, Volume, VolumeError,
};
use manylogs_block::{BlockDevice, Handle, MemoryNvram, Nvram, Payload, Request, Sectors};

use crate::common::{Rig, bytes, cached, config, in_virtual_time, read, write};

const SIZE: usize = 1 << 16;

fn memory() -> Rc<MemoryNvram> {
    Rc::new(MemoryNvram::new(SIZE))
}

fn copy(of: &MemoryNvram) -> Rc<MemoryNvram> {
    let copy = memory();
    let mut content = vec![0; SIZE];
    of.read(0, &mut content);
    copy.store(0, &content);
    copy
}

async fn create(runtime: &Handle, device: &Rc<Rig>, nvram: &Rc<MemoryNvram>) -> Volume {
    let nvram: Rc<dyn Nvram> = nvram.clone();
    let options = CreateOptions { nvram: Some(nvram), ..CreateOptions::default() };
    Volume::create_with(runtime.clone(), device.clone(), &config(), &options).await.unwrap()
}

fn open(
    runtime: &Handle,
    device: &Rc<Rig>,
    nvram: Option<&Rc<MemoryNvram>>,
    give_up_nvram: bool,
) -> impl Future<Output = Result<(Volume, RecoveryReport), VolumeError>> + use<> {
    let nvram = nvram.map(|nvram| Rc::clone(nvram) as Rc<dyn Nvram>);
    let options = OpenOptions { nvram, give_up_nvram, ..OpenOptions::default() };
    let (runtime, device) = (runtime.clone(), device.clone());
    async move { Volume::open(runtime, device, &options).await }
}

async fn holds(volume: &Volume, at: u64, expected: &Payload) -> bool {
    let found = volume.submit(read(at, expected.len().0)).await.unwrap();
    found.to_bytes() == expected.to_bytes()
}

#[test]
fn a_record_is_its_payload_and_nothing_else() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = create(&runtime, &device, &memory()).await;
        device.forget();
        volume.submit(write(0, &bytes(1, 8), true)).await.unwrap();
        volume.submit(Request::write_zeroes(read(50, 9).extent().unwrap(), true)).await.unwrap();
        let writes = device.writes();
        assert_eq!(writes.len(), 1, "{writes:?}");
        assert_eq!(writes[0].len, Sectors(8));
        assert_eq!(volume.stats().record_bytes, 8 * 512);
    });
}

#[test]
fn the_table_comes_back_without_a_look_at_the_logs() {
    in_virtual_time(|runtime| async move {
        let (device, nvram) = (cached(), memory());
        let volume = create(&runtime, &device, &nvram).await;
        for i in 0..40 {
            volume.submit(write(i * 30, &bytes(1, 8), true)).await.unwrap();
        }
        volume.submit(write(30, &bytes(2, 100), true)).await.unwrap();
        let table = volume.table();
        drop(volume);
        let (volume, report) = open(&runtime, &device, Some(&nvram), false).await.unwrap();
        assert!(report.from_nvram && !report.was_closed, "{report:?}");
        assert_eq!((report.records, report.scanned_logs), (41, 0));
        assert_eq!(volume.table(), table);
        assert!(holds(&volume, 30, &bytes(2, 100)).await && holds(&volume, 0, &bytes(1, 8)).await);
        volume.close().await.unwrap();
        let (volume, report) = open(&runtime, &device, Some(&nvram), false).await.unwrap();
        assert!(report.was_closed);
        assert_eq!(volume.table(), table);
    });
}

#[test]
fn a_table_that_will_not_do_is_refused() {
    in_virtual_time(|runtime| async move {
        let (device, nvram, other) = (cached(), memory(), memory());
        let volume = create(&runtime, &device, &nvram).await;
        volume.submit(write(0, &bytes(1, 8), true)).await.unwrap();
        drop(volume);
        drop(create(&runtime, &cached(), &other).await);
        let refused =
            async |nvram: Option<&Rc<MemoryNvram>>| match open(&runtime, &device, nvram, false)
                .await
            {
                Err(VolumeError::Nvram(error)) => error,
                other => panic!("{:?}", other.map(|(_, report)| report)),
            };
        assert_eq!(refused(None).await, NvramError::Missing);
        assert_eq!(refused(Some(&memory())).await, NvramError::Blank);
        assert_eq!(refused(Some(&other)).await, NvramError::Foreign);
        let torn = copy(&nvram);
        torn.store(30, &[1]);
        drop(open(&runtime, &device, Some(&copy(&torn)), false).await.unwrap());
        torn.store(2048 + 30, &[1]);
        assert!(matches!(refused(Some(&torn)).await, NvramError::Damaged(_)));
        let old = copy(&nvram);
        assert_eq!(refused(Some(&old)).await, NvramError::Stale { table: 1, volume: 2 });
    });
}

#[test]
fn damage_is_told_from_a_torn_entry() {
    in_virtual_time(|runtime| async move {
        let (device, nvram) = (cached(), memory());
        let volume = create(&runtime, &device, &nvram).await;
        for i in 0..3 {
            volume.submit(write(i * 30, &bytes(1, 8), true)).await.unwrap();
        }
        let at = 4096 + 16;
        let mut byte = [0];
        nvram.read(at, &mut byte);
        nvram.store(at, &[byte[0] ^ 1]);
        let refused = open(&runtime, &device, Some(&nvram), false).await;
        assert!(matches!(refused, Err(VolumeError::Nvram(NvramError::Damaged(_)))), "{refused:?}");
    });
}

#[test]
fn a_volume_with_its_table_in_the_logs_needs_no_memory() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        drop(Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap());
        let refused = open(&runtime, &device, Some(&memory()), false).await;
        assert!(matches!(refused, Err(VolumeError::Nvram(NvramError::Unused))));
    });
}

#[test]
fn memory_that_is_too_small_is_refused_at_format() {
    in_virtual_time(|runtime| async move {
        let nvram: Rc<dyn Nvram> = Rc::new(MemoryNvram::new(8192));
        let options = CreateOptions { nvram: Some(nvram), ..CreateOptions::default() };
        let created = Volume::create_with(runtime, cached(), &config(), &options).await;
        let refused = matches!(created, Err(VolumeError::Nvram(NvramError::TooSmall { .. })));
        assert!(refused, "{created:?}");
    });
}

#[test]
fn a_table_given_up_leaves_what_is_home() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = create(&runtime, &device, &memory()).await;
        volume.submit(write(0, &bytes(1, 8), true)).await.unwrap();
        volume.submit(write(1000, &bytes(2, 100), true)).await.unwrap();
        volume.checkpoint().await.unwrap();
        volume.submit(write(0, &bytes(3, 8), true)).await.unwrap();
        volume.submit(write(1020, &bytes(4, 8), true)).await.unwrap();
        drop(volume);
        let nvram = memory();
        let (volume, _) = open(&runtime, &device, Some(&nvram), true).await.unwrap();
        assert_eq!(volume.table(), []);
        assert!(holds(&volume, 0, &bytes(1, 8)).await, "as the checkpoint left it");
        assert!(holds(&volume, 1000, &bytes(2, 100)).await, "as the large write left it");
        volume.submit(write(0, &bytes(5, 8), true)).await.unwrap();
        drop(volume);
        let (volume, _) = open(&runtime, &device, Some(&nvram), false).await.unwrap();
        assert!(holds(&volume, 0, &bytes(5, 8)).await);
    });
}

#[test]
fn a_drained_volume_loses_nothing_with_its_memory() {
    in_virtual_time(|runtime| async move {
        let device = cached();
        let volume = create(&runtime, &device, &memory()).await;
        volume.submit(write(0, &bytes(1, 8), true)).await.unwrap();
        volume.drain(&DrainOptions { wipe: true }).await.unwrap();
        let (volume, report) = open(&runtime, &device, Some(&memory()), true).await.unwrap();
        assert!(report.was_closed && holds(&volume, 0, &bytes(1, 8)).await);
    });
}

/// A table that outgrows the memory makes checkpoints come early, and loses nothing.
#[test]
fn a_full_table_slows_down_and_loses_nothing() {
    in_virtual_time(|runtime| async move {
        let (device, nvram) = (cached(), Rc::new(MemoryNvram::new(24_576)));
        let given: Rc<dyn Nvram> = nvram.clone();
        let options = CreateOptions { nvram: Some(given), ..CreateOptions::default() };
        let (parameters, below) = (config(), device.clone());
        let created = Volume::create_with(runtime.clone(), below, &parameters, &options).await;
        let volume = created.unwrap();
        for i in 0..3000 {
            let content = bytes(crate::common::low_byte(i), 1);
            volume.submit(write(i * 7919 % 30_000, &content, true)).await.unwrap();
        }
        let stats = volume.stats();
        assert!(stats.nvram_rewrites > 10 && stats.checkpoints > 3, "{stats:?}");
        drop(volume);
        let (volume, _) = open(&runtime, &device, Some(&nvram), false).await.unwrap();
        for i in 0..3000 {
            let content = bytes(crate::common::low_byte(i), 1);
            assert!(holds(&volume, i * 7919 % 30_000, &content).await, "write {i}");
        }
    });
}
