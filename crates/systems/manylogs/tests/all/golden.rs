//! Compares the bytes of a small volume with images in the repository: this program must write the
//! same bytes as before, and still read the images.
//! `MANYLOGS_BLESS=1 cargo test -p manylogs --test golden` writes new images, which is a change of
//! the format: older images are kept beside them, and if older programs could not use the new ones,
//! the version must change.

use std::fmt::Write;
use std::path::PathBuf;
use std::rc::Rc;

use crate::common::{config, in_virtual_time, read, write};
use manylogs::{CreateOptions, OpenOptions, Volume, VolumeConfig, VolumeError};
use manylogs_block::{BlockDevice, Capabilities, Extent, MemoryDevice, Payload, Request, Sectors};
use manylogs_filters::Reported;

const DEVICE: Sectors = Sectors(9000);

/// A device with physical sectors of this length.
fn sectored(physical_sector: Sectors) -> Rc<Reported<MemoryDevice>> {
    let physical = |told| Capabilities { physical_sector, ..told };
    Rc::new(Reported::new(MemoryDevice::new(DEVICE), physical))
}

/// Sectors that differ only in their first bytes, to keep the images short.
fn marked(seed: u8, sectors: u64) -> Payload {
    let mut content = vec![0; usize::try_from(sectors * 512).unwrap()];
    for (number, sector) in (0..).zip(content.chunks_mut(512)) {
        sector[..2].copy_from_slice(&[seed, number]);
    }
    Payload::bytes(content)
}

fn path(kind: &str, physical: Sectors) -> PathBuf {
    let name = format!("{kind}-{}.txt", physical.bytes());
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Lines with an address in hexadecimal and its 16 bytes; lines of zeroes are left out.
async fn text_of(device: &dyn BlockDevice) -> String {
    let mut text = String::new();
    for sector in 0..DEVICE.0 {
        let content = device.submit(read(sector, 1)).await.unwrap().to_bytes().unwrap();
        for (row, bytes) in (0..).zip(content.chunks(16)) {
            if bytes.iter().any(|byte| *byte != 0) {
                let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(text, "{:07x}: {}", sector * 512 + row * 16, hex.join(" ")).unwrap();
            }
        }
    }
    text
}

async fn device_of(text: &str, physical: Sectors) -> Rc<Reported<MemoryDevice>> {
    let device = sectored(physical);
    let mut content = vec![0u8; usize::try_from(DEVICE.bytes()).unwrap()];
    for line in text.lines() {
        let (address, row) = line.split_once(": ").unwrap();
        let at = usize::from_str_radix(address, 16).unwrap();
        for (i, byte) in row.split(' ').enumerate() {
            content[at + i] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    let extent = Extent::new(0, DEVICE.0);
    device.submit(Request::write_fua(extent, Payload::bytes(content))).await.unwrap();
    device
}

/// Writes all kinds of entries, a large write over a logged one, and a record after a snapshot.
async fn fill(runtime: manylogs_block::Handle, device: Rc<Reported<MemoryDevice>>) {
    let options = CreateOptions {
        label: "golden".to_owned(),
        volume: Some(*b"0123456789abcdef"),
        ..CreateOptions::default()
    };
    let default = VolumeConfig::default();
    let (checkpoint, snapshot) = (default.checkpoint, default.snapshot);
    let config = VolumeConfig { checkpoint, snapshot, ..config() };
    let volume = Volume::create_with(runtime, device, &config, &options).await.unwrap();
    volume.submit(write(40, &marked(1, 8), true)).await.unwrap();
    volume.submit(write(47, &marked(2, 3), true)).await.unwrap();
    volume.submit(write(160, &marked(3, 16), true)).await.unwrap();
    volume.submit(write(160, &marked(4, 24), true)).await.unwrap();
    volume.submit(Request::Discard { extent: Extent::new(500, 3000), fua: false }).await.unwrap();
    volume.submit(Request::Flush).await.unwrap();
    volume.snapshot().await.unwrap();
    volume.submit(write(600, &marked(5, 1), true)).await.unwrap();
}

async fn verify(runtime: manylogs_block::Handle, device: Rc<Reported<MemoryDevice>>) {
    let options = OpenOptions::default();
    let (volume, report) = Volume::open(runtime, device, &options).await.unwrap();
    assert!(report.from_snapshot && !report.was_closed && report.damage.is_empty());
    let mut expected = vec![0u8; 4000 * 512];
    for (at, content) in
        [(40, marked(1, 8)), (47, marked(2, 3)), (160, marked(4, 24)), (600, marked(5, 1))]
    {
        let content = content.to_bytes().unwrap();
        expected[at * 512..at * 512 + content.len()].copy_from_slice(&content);
    }
    let found = volume.submit(read(0, 4000)).await.unwrap().to_bytes().unwrap();
    assert!(found == expected, "the volume reads differently");
}

fn compare(physical: Sectors) {
    in_virtual_time(move |runtime| async move {
        let device = sectored(physical);
        fill(runtime.clone(), Rc::clone(&device)).await;
        let written = text_of(&*device).await;
        if std::env::var_os("MANYLOGS_BLESS").is_some() {
            std::fs::write(path("volume", physical), &written).unwrap();
        }
        let golden = std::fs::read_to_string(path("volume", physical)).unwrap();
        for (number, (now, then)) in (1..).zip(written.lines().zip(golden.lines())) {
            assert_eq!(now, then, "line {number} of {}", path("volume", physical).display());
        }
        assert_eq!(written.lines().count(), golden.lines().count());
        verify(runtime, device_of(&golden, physical).await).await;
    });
}

#[test]
fn a_volume_of_512_byte_sectors_is_as_it_was() {
    compare(Sectors(1));
}

#[test]
fn a_volume_of_4096_byte_sectors_is_as_it_was() {
    compare(Sectors(8));
}

/// These volumes were made before the protective MBR. They must open as before, and a change of
/// their settings adds the MBR.
#[test]
fn volumes_without_a_protective_mbr_are_still_used() {
    for physical in [Sectors(1), Sectors(8)] {
        in_virtual_time(move |runtime| async move {
            let golden = std::fs::read_to_string(path("no-mbr", physical)).unwrap();
            verify(runtime.clone(), device_of(&golden, physical).await).await;
            let device = device_of(&golden, physical).await;
            let mark = Extent::new(0, 1);
            let is_marked = |sector: Payload| sector.to_bytes().unwrap()[510..] == [0x55, 0xaa];
            let before = device.submit(Request::Read { extent: mark }).await.unwrap();
            assert!(!is_marked(before), "it was made before");
            let options = OpenOptions::default();
            let opened = Volume::open(runtime, Rc::clone(&device) as _, &options).await;
            let volume = opened.unwrap().0;
            let kept = volume.settings();
            volume.set(&kept).await.unwrap();
            let after = device.submit(Request::Read { extent: mark }).await.unwrap();
            assert!(is_marked(after), "a superblock that is written now has it");
        });
    }
}

/// This volume was made before headers could share physical sectors with the payload.
#[test]
fn a_volume_with_headers_in_sectors_of_their_own_is_still_used() {
    in_virtual_time(|runtime| async move {
        let golden = std::fs::read_to_string(path("whole-headers", Sectors(8))).unwrap();
        verify(runtime.clone(), device_of(&golden, Sectors(8)).await).await;
        // Its records keep their length.
        let device = device_of(&golden, Sectors(8)).await;
        let (volume, _) = Volume::open(runtime, device, &OpenOptions::default()).await.unwrap();
        let before = volume.stats().record_bytes;
        volume.submit(write(40, &marked(6, 1), true)).await.unwrap();
        assert_eq!(volume.stats().record_bytes - before, 2 * 4096);
    });
}

#[test]
fn a_volume_of_format_2_is_refused() {
    in_virtual_time(|runtime| async move {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/format-2.txt");
        let device = device_of(&std::fs::read_to_string(path).unwrap(), Sectors(1)).await;
        let opened = Volume::open(runtime, device, &OpenOptions::default()).await;
        assert_eq!(opened.err(), Some(VolumeError::Version { found: 2, known: 3 }));
    });
}

/// A volume as large as today's largest disks; the device in memory stores only what is written.
#[test]
fn a_volume_of_20_terabytes() {
    in_virtual_time(|runtime| async move {
        let size = Sectors(20_000_000_000_000 / 512);
        let device = Rc::new(MemoryDevice::new(size));
        let config = manylogs::VolumeConfig::for_device(size);
        let volume = Volume::create(runtime.clone(), device.clone(), &config).await.unwrap();
        let last = volume.layout().capacity().0 - 8;
        for (seed, at) in [(1, 0), (2, last / 2), (3, last)] {
            volume.submit(write(at, &marked(seed, 8), true)).await.unwrap();
        }
        drop(volume);
        let options = OpenOptions::default();
        let (volume, _) = Volume::open(runtime.clone(), device.clone(), &options).await.unwrap();
        for (seed, at) in [(1, 0), (2, last / 2), (3, last)] {
            let found = volume.submit(read(at, 8)).await.unwrap();
            assert_eq!(found.to_bytes(), marked(seed, 8).to_bytes());
        }
        volume.close().await.unwrap();
        let (_, report) = Volume::open(runtime, device, &options).await.unwrap();
        assert_eq!(report.scanned_logs, 0, "a clean volume opens without a look at its logs");
    });
}
