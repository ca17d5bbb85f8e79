//! Signatures that identify the content of a disk.

/// Bytes at certain places that identify a format.
pub(crate) struct Signature {
    /// Name of the format.
    pub(crate) name: &'static str,
    pub(crate) place: Position,
    pub(crate) magic: &'static [u8],
    /// Whether every other signature says more than this one.
    pub(crate) weak: bool,
}

/// Where to look, in bytes.
#[derive(Clone, Copy)]
pub(crate) enum Position {
    /// This many bytes behind the start.
    Start(u64),
    /// At every `step` bytes in a range.
    Each { from: u64, until: u64, step: usize },
    /// This many bytes before the end, rounded down to a multiple.
    End { before: u64, align: u64 },
    /// The last whole block of this length, counted from the start.
    Last(u64),
}

const fn start(name: &'static str, at: u64, magic: &'static [u8]) -> Signature {
    Signature { name, place: Position::Start(at), magic, weak: false }
}

const fn at(name: &'static str, place: Position, magic: &'static [u8]) -> Signature {
    Signature { name, place, magic, weak: false }
}

const fn weak(name: &'static str, at: u64, magic: &'static [u8]) -> Signature {
    Signature { name, place: Position::Start(at), magic, weak: true }
}

const MANYLOGS: &str = "a Manylogs volume";
const CHAIN: &str = "a member of a chain of drives (manylogs serve finds the others)";
const CACHE: &str = "the cache of a chain of drives";
/// Name of a base volume of Everest among the formats that a survey knows.
pub const BASE_VOLUME: &str = "a base volume that borrows stores";
/// Name of a part that is lent to base volumes.
pub const LENT_STORE: &str = "a lent store";
const SWAP: &str = "swap space";
const LVM: &str = "an LVM physical volume";
const LUKS: &str = "a LUKS encrypted volume";
const MD: &str = "a member of a Linux software RAID";
const ZFS: &str = "a member of a ZFS pool";
const GPT: &str = "a GPT partition table";
const FAT: &str = "a FAT file system";
const REISERFS: &str = "a ReiserFS file system";

/// ZFS keeps a ring of roots in the second half of its first label.
const ZFS_ROOTS: Position = Position::Each { from: 128 << 10, until: 256 << 10, step: 1 << 10 };
/// An LVM label is in one of the first four sectors.
const LVM_LABELS: Position = Position::Each { from: 24, until: 2048, step: 512 };

/// The signatures, those that say most first.
pub(crate) const SIGNATURES: [Signature; 55] = [
    start(MANYLOGS, 0, b"MANYLOGS"),
    at(MANYLOGS, Position::Last(4096), b"MANYLOGS"),
    start(CHAIN, 0, b"MLGECKO1"),
    at(CHAIN, Position::Last(4096), b"MLGECKO1"),
    start(CACHE, 0, b"MLCACHE1"),
    start(BASE_VOLUME, 0, b"EVBASE01"),
    start(BASE_VOLUME, 65_536, b"EVBASE01"),
    start(LENT_STORE, 0, b"EVERSTOR"),
    at(LENT_STORE, Position::Last(4096), b"EVERSTOR"),
    start("an ext2, ext3 or ext4 file system", 1080, &[0x53, 0xef]),
    start("an XFS file system", 0, b"XFSB"),
    start("a Btrfs file system", 65_600, b"_BHRfS_M"),
    start("an F2FS file system", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    start("an NTFS file system", 3, b"NTFS    "),
    start("an exFAT file system", 3, b"EXFAT   "),
    start(FAT, 54, b"FAT12   "),
    start(FAT, 54, b"FAT16   "),
    start(FAT, 82, b"FAT32   "),
    start(SWAP, 4086, b"SWAPSPACE2"),
    start(SWAP, 16_374, b"SWAPSPACE2"),
    start(SWAP, 65_526, b"SWAPSPACE2"),
    start(SWAP, 4086, b"SWAP-SPACE"),
    at(LVM, LVM_LABELS, b"LVM2 001"),
    start(LUKS, 0, b"LUKS\xba\xbe"),
    start(LUKS, 16_384, b"SKUL\xba\xbe"),
    start(MD, 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    start(MD, 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    at(MD, Position::End { before: 8 << 10, align: 4 << 10 }, &[0xfc, 0x4e, 0x2b, 0xa9]),
    at(MD, Position::Last(64 << 10), &[0xfc, 0x4e, 0x2b, 0xa9]),
    start(
        "a bcache device",
        4120,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    start(
        "a bcachefs member",
        4120,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    at(ZFS, ZFS_ROOTS, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]),
    at(ZFS, ZFS_ROOTS, &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c]),
    start("a Ceph BlueStore device", 0, b"bluestore block device"),
    start("a dm-integrity device", 0, b"integrt\0"),
    start("a VDO volume", 0, b"dmvdo001"),
    start("a BitLocker encrypted volume", 3, b"-FVE-FS-"),
    start("an APFS container", 32, b"NXSB"),
    start("an HFS+ file system", 1024, b"H+"),
    start("an HFSX file system", 1024, b"HX"),
    start("a JFS file system", 32_768, b"JFS1"),
    start(REISERFS, 65_588, b"ReIsErFs"),
    start(REISERFS, 65_588, b"ReIsEr2Fs"),
    start("a NILFS2 file system", 1030, &[0x34, 0x34]),
    start("an OCFS2 file system", 8192, b"OCFSV2"),
    start("a GFS2 file system", 65_536, &[0x01, 0x16, 0x19, 0x70]),
    start("a SquashFS image", 0, b"hsqs"),
    start("an EROFS image", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    start("a QEMU qcow2 image", 0, b"QFI\xfb"),
    start("an ISO 9660 image", 32_769, b"CD001"),
    start(GPT, 512, b"EFI PART"),
    start(GPT, 4096, b"EFI PART"),
    at(GPT, Position::Last(512), b"EFI PART"),
    at(
        "a member of an Intel RAID",
        Position::End { before: 1024, align: 512 },
        b"Intel Raid ISM Cfg",
    ),
    weak("an MBR partition table or boot sector", 510, &[0x55, 0xaa]),
];
