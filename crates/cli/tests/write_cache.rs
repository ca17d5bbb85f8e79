//! The write cache of a drive, set for as long as it is served. The disk is a loop device that the
//! test's own sysfs shows as a SATA disk. `tests/guest/cache.sh` uses real disks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::served::{Image, MANYLOGS, Server, can_serve, ok, run, says};
use common::{Place, text};
use serde_json::Value;

const SATA: &str = "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0";

/// A volume on a loop device, and a sysfs that shows the device as a disk.
struct Disk {
    image: Image,
    node: String,
    /// The disk's directory in that sysfs.
    dir: PathBuf,
}

impl Disk {
    /// A disk at `device` of that sysfs, behind a host with the driver `driver`; `None` if it
    /// cannot be made here.
    fn new(device: &str, driver: &str) -> Option<Self> {
        if !can_serve(true) {
            return None;
        }
        let image = Image::formatted(&["--size", "64M", "--log", "1M", "--group", "8M"]);
        let node = ok(Command::new("losetup").args(["--find", "--show", image.path()]));
        let node = node.trim().to_owned();
        let name = node.strip_prefix("/dev/").unwrap();
        let number = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap();
        let sys = image.beside("sys");
        let at = sys.join("devices").join(device);
        let dir = at.join("block").join(name);
        fs::create_dir_all(dir.join("queue")).unwrap();
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        fs::create_dir_all(sys.join("class/block").join(name)).unwrap();
        // Absolute links, which lead into the file system mounted on /sys.
        symlink(Path::new("/sys/devices").join(device), dir.join("device")).unwrap();
        let shown = Path::new("/sys/devices").join(device).join("block").join(name);
        symlink(shown, sys.join("dev/block").join(number.trim())).unwrap();
        let disk = Self { image, node, dir };
        let host = device.split('/').position(|part| part.starts_with("host"));
        if let Some(host) = host {
            let parts: Vec<&str> = device.split('/').take(host + 1).collect();
            let told =
                sys.join("devices").join(parts.join("/")).join("scsi_host").join(parts[host]);
            fs::create_dir_all(&told).unwrap();
            fs::write(told.join("proc_name"), driver).unwrap();
        }
        fs::create_dir_all(at.join("scsi_disk/0:0:0:0")).unwrap();
        for (attribute, value) in [
            ("scsi_disk/0:0:0:0/cache_type", "write back"),
            ("queue_depth", "32"),
            ("vendor", "ATA"),
            ("wwid", &format!("t10.ATA test {} {number}", std::process::id())),
        ] {
            fs::write(at.join(attribute), format!("{value}\n")).unwrap();
        }
        for (attribute, value) in
            [("dev", number.trim()), ("size", "131072"), ("queue/write_cache", "write back")]
        {
            fs::write(disk.dir.join(attribute), format!("{value}\n")).unwrap();
        }
        for (attribute, value) in [("fua", "0"), ("rotational", "1"), ("discard_max_bytes", "0")] {
            fs::write(disk.dir.join("queue").join(attribute), format!("{value}\n")).unwrap();
        }
        Some(disk)
    }

    /// The file of the cache type. Reached by a relative path, because the links lead into the
    /// host's own sysfs here.
    fn cache_type(&self) -> PathBuf {
        self.dir.join("../../scsi_disk/0:0:0:0/cache_type")
    }

    fn cache(&self) -> String {
        fs::read_to_string(self.cache_type()).unwrap().trim().to_owned()
    }

    /// A command in a mount name space where the test's sysfs is mounted on /sys.
    fn command(&self, args: &[&str]) -> Command {
        let sys = self.image.beside("sys");
        let mut command = Command::new("unshare");
        let script = "mount --bind \"$0\" /sys && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script, text(&sys), MANYLOGS]).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn serve(&self, options: &[&str]) -> Server {
        let socket = format!("unix:{}", text(&self.image.beside("sock")));
        let fixed = ["serve", &self.node, "--nbd", &socket];
        Server::start(&mut self.command(&[&fixed[..], options].concat()))
    }

    fn stop(&self) -> String {
        says(&self.run(&["stop", &self.node]), 0, &self.node)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.node]).status();
    }
}

#[test]
fn a_served_disks_cache_is_off_and_then_as_before_also_after_kills() {
    let Some(disk) = Disk::new(SATA, "ahci") else { return };
    let told = says(&disk.run(&["status", &disk.node]), 0, "SATA, write cache on, fua 0");
    assert!(told.contains("FLUSH CACHE") && told.contains("libata.fua=1"), "{told}");
    let server = disk.serve(&["--write-cache", "off"]);
    assert_eq!(disk.cache(), "write through");
    says(&disk.run(&["status", &disk.node]), 0, "turns it on at its end");
    disk.stop();
    let said = server.wait().1;
    assert!(said.contains("is on again"), "{said}");
    assert_eq!(disk.cache(), "write back");

    disk.serve(&["--write-cache", "off"]).kill();
    assert_eq!(disk.cache(), "write through", "nobody was left to put it back");
    let listed = says(&disk.run(&["list", "--json"]), 0, "disks");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["disks"][0]["put_back"], true, "{listed}");
    says(&disk.run(&["list"]), 0, "which was killed, has turned the write cache off");
    says(&disk.run(&["stop", &disk.node]), 0, "put back what a killed one had changed");
    assert_eq!(disk.cache(), "write back");
    says(&disk.run(&["stop", &disk.node]), 2, "no server has");

    // Two servers with the same wish are killed: the setting that the first one found is restored.
    disk.serve(&["--write-cache", "off"]).kill();
    disk.serve(&["--write-cache", "off"]).kill();
    let server = disk.serve(&[]);
    assert_eq!(disk.cache(), "write back", "before it serves");
    disk.stop();
    drop(server);
}

#[test]
fn what_nobody_can_see_or_set_is_refused_with_the_reason() {
    let Some(raid) = Disk::new("pci0000:00/0000:03:00.0/host2/target2:0:0", "megaraid_sas") else {
        return;
    };
    let socket = format!("unix:{}", text(&raid.image.beside("sock")));
    let serve = ["serve", &raid.node, "--nbd", &socket, "--write-cache", "off"];
    says(&raid.run(&serve), 2, "RAID controller (megaraid_sas)");
    assert_eq!(raid.cache(), "write back");
    let status = raid.run(&["status", &raid.node]);
    says(&status, 0, "write cache unknown");
    let told = says(&raid.run(&["status", &raid.node, "--json"]), 0, "\"link\": \"raid\"");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(told["disk"]["write_cache"].is_null(), "{told}");
    assert_eq!(told["disk"]["drains_queue"], false);
    // The host itself sees a loop device.
    run(&serve, 2, "whose cache counts");
    // A disk that accepts the setting and ignores it.
    let Some(stuck) = Disk::new(SATA, "ahci") else { return };
    fs::write(stuck.cache_type(), "something new\n").unwrap();
    let serve = ["serve", &stuck.node, "--nbd", &socket, "--write-cache", "off"];
    says(&stuck.run(&serve), 1, "does not say whether its write cache is on");
    assert_eq!(stuck.cache(), "something new");
}

#[test]
fn advice_for_a_disk_believes_the_disk_and_says_what_contradicts_the_profile() {
    let Some(disk) = Disk::new(SATA, "ahci") else { return };
    let advise = ["advise", "synthetic", "--limit", "120", "--seeds", "1", "--disk", &disk.node];
    let name = disk.node.strip_prefix("/dev/").unwrap();
    let said = disk.run(&[&advise[..], &["--drive", "cheetah-15k5"]].concat());
    let said = says(&said, 0, &format!("cheetah-15k5 says sas, and {name} is on sata"));
    assert!(said.contains("no SATA drive turns 15017 times a minute"), "{said}");
    assert!(said.contains(&format!("the write cache of {name} is on now")), "{said}");
    // The host itself sees a loop device.
    let advise = [&advise[..], &["--drive", "exos-x20"]].concat();
    run(&advise, 0, "cannot be seen: it is no disk but made of something else");
}

#[test]
fn wishes_that_are_none_are_refused() {
    let place = Place::new();
    let image = Image::formatted(&["--size", "64M", "--log", "1M", "--group", "8M"]);
    let nbd = format!("unix:{}", text(&place.path("sock")));
    run(&["serve", image.path(), "--nbd", &nbd, "--write-cache", "maybe"], 2, "on, off, keep");
    let serve = ["serve", image.path(), "--nbd", &nbd, "--write-cache", "on"];
    run(&serve, 2, "it is no disk but a file");
    let target = place.path("");
    let mount = ["fs", "mount", image.path(), text(&target), "-o", "write_cache=perhaps"];
    run(&mount, 2, "expected on, off or keep");
    let advise = ["advise", "synthetic", "--limit", "200", "--disk"];
    place.run(&[&advise[..], &["/nowhere"]].concat()).fails(2, &["/nowhere"]);
    place.run(&[&advise[..], &[image.path()]].concat()).fails(2, &["this is none"]);
    place.run(&[&advise[..], &["/dev/null"]].concat()).fails(2, &["this is none"]);
}

#[test]
fn an_emulated_drive_has_its_own_cache_and_says_what_records_cost() {
    if !can_serve(false) {
        return;
    }
    let image = Image::formatted(&["--size", "1G", "--sparse", "--physical-sector", "4096"]);
    let nbd = format!("unix:{}", text(&image.beside("sock")));
    let emulate = ["--nbd", nbd.as_str(), "--emulate", "exos-x20"];
    for (options, drains) in [
        (&[][..], true),
        (&["--write-cache", "keep"], true),
        (&["--write-cache", "off"], false),
        (&["--drive-fua", "on"], false),
        (&["--drive-link", "sas"], false),
    ] {
        let server = Server::start(&mut image.serve(&[&emulate[..], options].concat()));
        let told = run(&["status", image.path(), "--json"], 0, "emulated");
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["disk"]["drains_queue"], drains, "{options:?}");
        let words = run(&["status", image.path()], 0, "disk            ");
        assert_eq!(words.contains("FLUSH CACHE"), drains, "{options:?} {words}");
        run(&["stop", image.path()], 0, "closed");
        let said = server.wait().1;
        assert_eq!(said.contains("FLUSH CACHE"), drains, "{options:?} {said}");
    }
}
