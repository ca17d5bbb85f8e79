//! Tests on directory trees that look like sysfs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::held::{noted_in, settle_in};
use super::*;

const SATA: &str = "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0";
const SAS: &str = "pci0000:00/0000:02:00.0/host1/port-1:0/end_device-1:0/target1:0:0/1:0:0:0";
const USB: &str = "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0";
const PLAIN: &str = "pci0000:00/0000:03:00.0/host2/target2:0:0/2:0:0:0";
const GUESTS: &str = "pci0000:00/0000:00:05.0/virtio2/host3/target3:0:0/3:0:0:0";

/// A machine with one disk.
struct Machine {
    dir: tempfile::TempDir,
    disk: PathBuf,
}

impl Machine {
    /// A disk `sdb` that is the device at `device`, whose host's driver is `driver`.
    fn new(device: &str, driver: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path().join("sys");
        let at = sys.join("devices").join(device);
        let disk = at.join("block/sdb");
        fs::create_dir_all(disk.join("queue")).unwrap();
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        fs::create_dir_all(dir.path().join("dev")).unwrap();
        fs::write(dir.path().join("dev/sdb"), "").unwrap();
        symlink(&at, disk.join("device")).unwrap();
        symlink(&disk, sys.join("dev/block/8:16")).unwrap();
        let host = at.ancestors().find(|dir| {
            dir.file_name().and_then(|name| name.to_str()).is_some_and(|n| n.starts_with("host"))
        });
        if let Some(host) = host {
            let told = host.join("scsi_host").join(host.file_name().unwrap());
            fs::create_dir_all(&told).unwrap();
            fs::write(told.join("proc_name"), format!("{driver}\n")).unwrap();
        }
        let machine = Self { dir, disk };
        machine.say("dev", "8:16");
        machine.say("queue/write_cache", "write back");
        machine.say("queue/fua", "0");
        machine.say("queue/rotational", "1");
        machine.say("size", "1000");
        machine.say("device/queue_depth", "32");
        machine.say("device/wwid", "naa.5000c500a1b2c3d4");
        machine.say("device/vendor", if driver == "ahci" { "ATA     " } else { "SEAGATE " });
        fs::create_dir_all(machine.disk.join("device/scsi_disk/0:0:0:0")).unwrap();
        machine.say(CACHE_TYPE, "write back");
        machine
    }

    fn say(&self, attribute: &str, text: &str) {
        fs::write(self.disk.join(attribute), format!("{text}\n")).unwrap();
    }

    fn told(&self, attribute: &str) -> String {
        fs::read_to_string(self.disk.join(attribute)).unwrap().trim().to_owned()
    }

    fn system(&self) -> System {
        let at = |name: &str| self.dir.path().join(name);
        System { sys: at("sys"), dev: at("dev"), proc: at("proc"), ..System::this() }
    }

    fn disk(&self) -> Disk {
        self.system().disk(DeviceNumber { major: 8, minor: 16 })
    }

    fn attached(&self) -> Attached {
        Attached::of(&self.disk())
    }

    fn switch(&self) -> Result<CacheSwitch, NoSwitch> {
        CacheSwitch::of(&self.system(), &self.disk())
    }
}

#[test]
fn a_sata_disk_without_fua_drains_its_queue_for_each_durable_write() {
    let machine = Machine::new(SATA, "ahci");
    let expected = Attached {
        disk: "sdb".to_owned(),
        transport: Transport::Sata,
        flushed: Some(true),
        write_cache: Some(true),
        fua: Some(false),
        queue_depth: Some(32),
        rotational: Some(true),
        bytes: 512_000,
    };
    assert_eq!(machine.attached(), expected);
    for (attribute, other, usual) in [
        ("queue/fua", "1", "0"),
        ("queue/write_cache", "write through", "write back"),
        ("device/queue_depth", "1", "32"),
    ] {
        assert!(machine.attached().drains_queue());
        machine.say(attribute, other);
        assert!(!machine.attached().drains_queue(), "{attribute} {other}");
        machine.say(attribute, usual);
    }
}

#[test]
fn a_partition_is_attached_as_its_disk() {
    let machine = Machine::new(SATA, "ahci");
    let partition = machine.disk.join("sdb1");
    fs::create_dir(&partition).unwrap();
    fs::write(partition.join("dev"), "8:17\n").unwrap();
    fs::write(partition.join("partition"), "1\n").unwrap();
    symlink(&partition, machine.dir.path().join("sys/dev/block/8:17")).unwrap();
    let partition = machine.system().disk(DeviceNumber { major: 8, minor: 17 });
    assert_eq!(Attached::of(&partition.whole_disk().unwrap()), machine.attached());
}

#[test]
fn the_way_to_the_disk_is_told_by_its_path_and_its_driver() {
    let of = |device: &str, driver: &str| Machine::new(device, driver).attached().transport;
    assert_eq!(of(SAS, "mpt3sas"), Transport::Scsi("mpt3sas".to_owned()));
    assert_eq!(of(PLAIN, "qla2xxx"), Transport::Scsi("qla2xxx".to_owned()));
    let behind = Machine::new(SAS, "mpt3sas");
    behind.say("device/vendor", "ATA     ");
    assert_eq!(behind.attached().transport, Transport::SataBehindSas);
    assert!(behind.attached().drains_queue());
    assert_eq!(of(USB, "uas"), Transport::Usb);
    assert_eq!(of(PLAIN, "usb-storage"), Transport::Usb);
    assert_eq!(of(PLAIN, "megaraid_sas"), Transport::Raid("megaraid_sas".to_owned()));
    assert_eq!(of(GUESTS, "virtio_scsi"), Transport::Virtual("virtio".to_owned()));
    assert_eq!(of("pci0000:00/virtio1", ""), Transport::Virtual("virtio".to_owned()));
    assert_eq!(of("vmbus/a/host4/target4:0:0", "storvsc_host_t").name(), "virtual");
    assert_eq!(of("pci0000:00/nvme/nvme0", ""), Transport::Nvme);
    assert_eq!(of("platform/mmc0", ""), Transport::Unknown("sdb".to_owned()));
}

#[test]
fn what_nobody_can_see_or_set_is_not_set() {
    for (device, driver, words) in [
        (USB, "uas", "USB bridge"),
        (PLAIN, "hpsa", "RAID controller (hpsa)"),
        (GUESTS, "virtio_scsi", "host's (virtio)"),
        ("platform/mmc0", "", "not known"),
    ] {
        let machine = Machine::new(device, driver);
        assert!(!machine.attached().drains_queue(), "{driver}");
        let refused = machine.switch().unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
    let made = Machine::new(SATA, "ahci");
    fs::remove_file(made.disk.join("device")).unwrap();
    assert_eq!(made.attached().transport, Transport::Made(Vec::new()));
    assert!(made.switch().unwrap_err().to_string().contains("made of something else"));
}

#[test]
fn a_disk_without_the_attribute_or_a_name_is_refused() {
    let machine = Machine::new(SATA, "ahci");
    fs::remove_file(machine.disk.join("device/wwid")).unwrap();
    assert_eq!(machine.switch().unwrap_err(), NoSwitch::Nameless { disk: "sdb".to_owned() });
    machine.say("diskseq", "7");
    assert_eq!(machine.switch().unwrap().identity(), "7");
    fs::remove_dir_all(machine.disk.join("device/scsi_disk")).unwrap();
    assert_eq!(machine.switch().unwrap_err(), NoSwitch::NotOffered { disk: "sdb".to_owned() });
    assert_eq!(machine.attached().write_cache, None);
    assert_eq!(CacheSwitch::at(machine.dir.path()).unwrap_err(), NoSwitch::NoDisk);
}

#[test]
fn the_cache_goes_off_and_on_and_reads_stay_cached_as_they_were() {
    let machine = Machine::new(SATA, "ahci");
    let switch = machine.switch().unwrap();
    let word = CACHE_TYPE;
    for (before, on, after) in [
        ("write back", false, "write through"),
        ("write through", true, "write back"),
        ("write back, no read (daft)", false, "none"),
        ("none", true, "write back, no read (daft)"),
        ("none", false, "none"),
    ] {
        machine.say(word, before);
        switch.set(on).unwrap();
        assert_eq!((machine.told(word).as_str(), switch.is_on().unwrap()), (after, on));
    }
}

#[test]
fn a_disk_that_refuses_or_does_nothing_is_told_as_such() {
    let machine = Machine::new(SATA, "ahci");
    let word = CACHE_TYPE;
    let switch = machine.switch().unwrap();
    machine.say(word, "something new");
    assert!(matches!(switch.set(false), Err(CacheError::Unreadable { .. })));
    machine.say(word, "write back");
    fs::remove_file(machine.dir.path().join("dev/sdb")).unwrap();
    assert!(matches!(switch.set(false), Err(CacheError::Flush { .. })));
    assert_eq!(machine.told(word), "write back", "nothing was changed");
    fs::write(machine.dir.path().join("dev/sdb"), "").unwrap();
    // The attribute cannot be read.
    let path = machine.disk.join(word);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(switch.is_on(), Err(CacheError::Unreadable { .. })));
}

#[test]
fn flushes_that_the_kernel_drops_over_a_cache_are_noticed() {
    let machine = Machine::new(SATA, "ahci");
    assert!(!machine.attached().drops_flushes());
    machine.say("queue/write_cache", "write through");
    assert!(machine.attached().drops_flushes());
    machine.say(CACHE_TYPE, "write through");
    assert!(!machine.attached().drops_flushes());
}

/// A kernel over a drive whose cache is off and which refuses to turn it on.
fn refusing(attribute: &Path, text: &str) -> std::io::Result<()> {
    let believed = |path: &Path, word: &str| fs::write(path, format!("{word}\n"));
    match (attribute.ends_with("rescan"), text.trim().strip_prefix("temporary ")) {
        (true, _) => {
            believed(&attribute.with_file_name("scsi_disk/0:0:0:0/cache_type"), "write through")
        }
        (false, Some(word)) => believed(attribute, word),
        (false, None) if text.starts_with("write back") => {
            Err(std::io::ErrorKind::InvalidInput.into())
        }
        (false, None) => believed(attribute, text.trim()),
    }
}

/// As above, but the kernel cannot ask the drive again either.
fn refusing_for_good(attribute: &Path, text: &str) -> std::io::Result<()> {
    if attribute.ends_with("rescan") {
        Err(std::io::ErrorKind::NotFound.into())
    } else {
        refusing(attribute, text)
    }
}

#[test]
fn a_failed_attempt_to_turn_the_cache_on_is_not_believed_the_next_time() {
    let machine = Machine::new(SATA, "ahci");
    machine.say(CACHE_TYPE, "write through");
    let switch = machine.switch().unwrap().through(refusing);
    for _ in 0..2 {
        assert!(matches!(switch.set(true), Err(CacheError::Refused { on: true, .. })));
        assert!(!switch.is_on().unwrap());
    }
    let run = machine.dir.path().join("run");
    let take = |switch| HeldCache::take_in(&run, switch, Path::new("/dev/sdb"), true);
    for _ in 0..2 {
        assert!(take(switch.clone()).is_err());
        assert_eq!(notes(&machine), 0);
    }
    // If the setting of a killed server cannot be put back, its note stays, after any number of
    // attempts.
    machine.say(CACHE_TYPE, "write back");
    killed(&machine, hold(&machine, "/dev/sdb", false).unwrap());
    for _ in 0..2 {
        assert!(settle_in(&run, &switch).is_err());
        assert_eq!(notes(&machine), 1);
    }
}

#[test]
fn what_the_kernel_believes_for_good_is_noted_and_put_right() {
    let machine = Machine::new(SATA, "ahci");
    machine.say(CACHE_TYPE, "write through");
    let switch = machine.switch().unwrap().through(refusing_for_good);
    let run = machine.dir.path().join("run");
    assert!(HeldCache::take_in(&run, switch.clone(), Path::new("/dev/sdb"), true).is_err());
    assert!(is_on(&machine) && notes(&machine) == 1);
    assert_eq!(settle_in(&run, &switch).unwrap(), Some(Released::PutBack { on: false }));
    assert!(!is_on(&machine) && notes(&machine) == 0);
}

/// Number of notes on a machine.
fn notes(machine: &Machine) -> usize {
    fs::read_dir(machine.dir.path().join("run")).map_or(0, Iterator::count)
}

fn hold(machine: &Machine, device: &str, on: bool) -> Result<HeldCache, HoldError> {
    let run = machine.dir.path().join("run");
    HeldCache::take_in(&run, machine.switch().unwrap(), Path::new(device), on)
}

fn settled(machine: &Machine) -> Option<Released> {
    settle_in(&machine.dir.path().join("run"), &machine.switch().unwrap()).unwrap()
}

fn is_on(machine: &Machine) -> bool {
    machine.switch().unwrap().is_on().unwrap()
}

/// Kills a server, which puts nothing back: its lock goes, its note stays.
fn killed(machine: &Machine, held: HeldCache) {
    let path = fs::read_dir(machine.dir.path().join("run")).unwrap().flatten().next().unwrap();
    let note = fs::read(path.path()).unwrap();
    let word = machine.told(CACHE_TYPE);
    drop(held);
    fs::write(path.path(), note).unwrap();
    machine.say(CACHE_TYPE, &word);
}

const CACHE_TYPE: &str = "device/scsi_disk/0:0:0:0/cache_type";

#[test]
fn a_setting_is_put_back_at_the_end() {
    let machine = Machine::new(SATA, "ahci");
    let held = hold(&machine, "/dev/sdb", false).unwrap();
    assert!(!is_on(&machine) && held.former() && held.disk() == "sdb");
    let run = machine.dir.path().join("run");
    let noted = noted_in(&run, &machine.switch().unwrap()).unwrap();
    let pid = std::process::id();
    assert_eq!(noted, Noted { former: true, set: false, pid, is_held: true });
    assert_eq!(settled(&machine), None, "somebody holds it");
    assert_eq!(held.release().unwrap(), Released::PutBack { on: true });
    assert!(is_on(&machine) && notes(&machine) == 0);
    // A setting that was the same before stays.
    let held = hold(&machine, "/dev/sdb", true).unwrap();
    assert_eq!(held.release().unwrap(), Released::AsBefore);
    assert!(is_on(&machine) && notes(&machine) == 0);
}

#[test]
fn what_a_killed_server_left_is_put_back_by_the_next() {
    let machine = Machine::new(SATA, "ahci");
    let off = || killed(&machine, hold(&machine, "/dev/sdb", false).unwrap());
    off();
    let run = machine.dir.path().join("run");
    let noted = noted_in(&run, &machine.switch().unwrap()).unwrap();
    assert!(!is_on(&machine) && !noted.is_held && noted.former);
    assert_eq!(settled(&machine), Some(Released::PutBack { on: true }));
    assert!(is_on(&machine) && notes(&machine) == 0);
    // The same command again: the first one's old setting counts, however often it is killed.
    off();
    off();
    let held = hold(&machine, "/dev/sdb", false).unwrap();
    assert_eq!(held.release().unwrap(), Released::PutBack { on: true });
    // The setting was changed by hand, or the drive lost power: the cache is on again.
    off();
    machine.say(CACHE_TYPE, "write back");
    assert_eq!(settled(&machine), Some(Released::Changed));
    assert!(is_on(&machine) && notes(&machine) == 0);
    off();
    machine.say(CACHE_TYPE, "write back");
    let held = hold(&machine, "/dev/sdb", false).unwrap();
    assert_eq!(held.release().unwrap(), Released::PutBack { on: true });
}

#[test]
fn the_last_of_two_servers_on_a_disk_puts_back() {
    let machine = Machine::new(SATA, "ahci");
    let first = hold(&machine, "/dev/sdb1", false).unwrap();
    let second = hold(&machine, "/dev/sdb2", false).unwrap();
    let refused = hold(&machine, "/dev/sdb3", true).unwrap_err().to_string();
    assert!(refused.contains("serves /dev/sdb1") && refused.contains("off"), "{refused}");
    assert_eq!(first.release().unwrap(), Released::Shared);
    assert!(!is_on(&machine));
    assert_eq!(second.release().unwrap(), Released::PutBack { on: true });
    assert!(is_on(&machine) && notes(&machine) == 0);
}

#[test]
fn a_disk_that_refuses_leaves_no_note() {
    let machine = Machine::new(SATA, "ahci");
    fs::remove_file(machine.dir.path().join("dev/sdb")).unwrap();
    assert!(matches!(hold(&machine, "/dev/sdb", false), Err(HoldError::Cache(_))));
    assert!(is_on(&machine) && notes(&machine) == 0);
    // The note of a killed server stays, if there was one.
    fs::write(machine.dir.path().join("dev/sdb"), "").unwrap();
    killed(&machine, hold(&machine, "/dev/sdb", false).unwrap());
    machine.say(CACHE_TYPE, "?");
    assert!(matches!(hold(&machine, "/dev/sdb", true), Err(HoldError::Cache(_))));
    machine.say(CACHE_TYPE, "write through");
    assert_eq!(settled(&machine), Some(Released::PutBack { on: true }));
}
