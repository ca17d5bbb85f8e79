//! The same empty file system three times: the kernel's ext4, and ours in two modes.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::Mode;

use crate::common::image::program;
use crate::common::{Outcome, Place};
use crate::perform::World;

/// Size of each image.
const MIB: u64 = 320;
/// The kernel's world comes first.
pub(crate) const NAMES: [&str; 3] = ["kernel", "ordered", "manylogs"];

/// Options with which the images are made and mounted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) mkfs: &'static [&'static str],
    pub(crate) times: &'static str,
}

/// Successive seeds use these in turn.
pub(crate) const KINDS: [Kind; 5] = [
    Kind { mkfs: &[], times: "relatime" },
    Kind { mkfs: &["-O", "metadata_csum_seed,orphan_file"], times: "noatime" },
    Kind { mkfs: &["-O", "^metadata_csum,^64bit,^dir_nlink"], times: "relatime" },
    Kind { mkfs: &["-I", "128"], times: "relatime" },
    Kind { mkfs: &["-O", "^flex_bg,^uninit_bg,^dir_index"], times: "relatime" },
];

/// The mounted images; unmounted when dropped.
pub(crate) struct Worlds {
    place: Place,
    kind: Kind,
    /// The bug planted in our servers.
    bug: Option<&'static str>,
    mounted: bool,
}

impl Worlds {
    /// `None` if there is no mkfs.ext4.
    pub(crate) fn new(kind: Kind, bug: Option<&'static str>) -> Option<Self> {
        let place = Place::new();
        // Other users than root must be able to pass this directory.
        let passable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.path(""), passable).unwrap();
        let same = "e0a1b2c3-1111-4222-8333-0123456789ab";
        for name in NAMES {
            let image = place.path(&format!("{name}.img"));
            File::create(&image).unwrap().set_len(MIB << 20).unwrap();
            fs::create_dir(place.path(name)).unwrap();
            let mut mkfs = program("mkfs.ext4");
            mkfs.args(["-q", "-F", "-b", "4096", "-U", same, "-E"]);
            mkfs.arg(format!("hash_seed={same},root_owner=0:0")).args(kind.mkfs).arg(&image);
            let Ok(made) = mkfs.output() else {
                manylogs_testkit::skip("needs mkfs.ext4");
                return None;
            };
            assert!(made.status.success(), "{made:?}");
        }
        place.run(&["fs", "adopt", "manylogs.img", "--yes"]).succeeds();
        let mut worlds = Self { place, kind, bug, mounted: false };
        worlds.mount();
        Some(worlds)
    }

    pub(crate) fn mount(&mut self) {
        let umask = rustix::process::umask(Mode::from_raw_mode(0o22));
        for name in NAMES {
            let (image, times) = (format!("{name}.img"), self.kind.times);
            if name == "kernel" {
                let mut mount = program("mount");
                mount.args(["-t", "ext4", "-o", &format!("loop,{times}"), &image, name]);
                let done = mount.current_dir(self.place.path("")).output().unwrap();
                assert!(done.status.success(), "{done:?}");
            } else {
                let args = ["fs", "mount", &image, name, "--background", "--mode", name];
                let mut mount = self.place.command(&[&args[..], &["-o", times]].concat());
                if let Some(bug) = self.bug {
                    mount.env("MANYLOGS_PLANT", bug);
                }
                Outcome::of(&mount.output().unwrap()).succeeds();
            }
        }
        self.mounted = true;
        rustix::process::umask(umask);
    }

    /// Unmounts all worlds; no file may be open there.
    pub(crate) fn unmount(&mut self) {
        self.mounted = false;
        for name in NAMES {
            // Retries: files inherited by another process are released when it runs its program,
            // and a closed file once the server has got that request.
            let unmounted = || match name {
                "kernel" => {
                    let mut umount = Command::new("umount");
                    umount.arg(self.place.path(name)).output().unwrap().status.success()
                }
                _ => self.place.run(&["fs", "unmount", name]).code == Some(0),
            };
            assert!((0..1000).any(|_| unmounted()), "{name} cannot be unmounted");
        }
    }

    /// A new empty directory `name` in each world.
    pub(crate) fn begin(&self, name: &str) -> Vec<World> {
        rustix::process::umask(Mode::from_raw_mode(0o22));
        let begin = |world: &str| {
            let above = self.place.path(world).join(name);
            // Names that begin with `..` lead no further than here.
            let path = above.join("base");
            fs::create_dir_all(&path).unwrap();
            for dir in [&above, &path] {
                fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
            }
            World::new(path)
        };
        NAMES.map(begin).into()
    }

    /// The directory `name` in each world, with its content.
    pub(crate) fn again(&self, name: &str) -> Vec<World> {
        NAMES.map(|world| World::new(self.path(world, name))).into()
    }

    fn path(&self, world: &str, name: &str) -> PathBuf {
        self.place.path(world).join(name).join("base")
    }

    /// Unmounts, and has e2fsck check the images.
    pub(crate) fn check(mut self) {
        self.unmount();
        self.place.run(&["fs", "release", "manylogs.img"]).succeeds();
        for name in NAMES {
            let image = self.place.path(&format!("{name}.img"));
            let checked = program("e2fsck").arg("-fn").arg(image).output().unwrap();
            let said = String::from_utf8_lossy(&checked.stdout);
            assert!(checked.status.success(), "{name}: {said}");
        }
    }
}

impl Drop for Worlds {
    fn drop(&mut self) {
        if self.mounted {
            self.unmount();
        }
    }
}
