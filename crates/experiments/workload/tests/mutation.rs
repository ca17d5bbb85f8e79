//! Fixtures of each format, damaged at random by seed: no panic, no hang, and each error names its
//! place.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, stop at what they do not expect")]

mod common;

use std::path::Path;

use common::fixture;
use manylogs_workload::{Format, fuzz_one};

/// A small generator of its own, so that a seed means the same for ever.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }
}

/// Bytes that mean something to some parser.
const TOKENS: &[&[u8]] = &[
    b"\n",
    b",",
    b" ",
    b"\"",
    b"-1",
    b"0",
    b"18446744073709551615",
    b"99999999999999999999",
    b"1e308",
    b".",
    b"nan",
    b"R",
    b"W",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"MLB1",
    b"MLEN",
    b"BeginHeader\n",
    b"EndHeader\n",
    b"+ 0",
    b"F",
    b"4503599627370496",
    b"\x07\x74\x61\x65",
];

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let place = random.below(bytes.len() + 1);
        let end = (place + random.below(16)).min(bytes.len());
        match random.below(7) {
            0 => bytes.truncate(place),
            1 => drop(bytes.drain(place..end)),
            2 => {
                let copy = bytes[place..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            3 | 4 => {
                let token = TOKENS[random.below(TOKENS.len())];
                let until = if random.below(2) == 0 { end } else { place };
                bytes.splice(place..until, token.iter().copied());
            }
            _ if place < bytes.len() => {
                let bit = random.below(8);
                bytes[place] ^= 1 << bit;
            }
            _ => {}
        }
    }
}

/// Shows the input that a check failed on.
struct Input<'a>(&'a [u8]);

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("input: \"{}\"", self.0.escape_ascii());
        }
    }
}

#[test]
fn damaged_traces_are_read_or_refused() {
    const INPUTS_PER_FORMAT: u64 = 6_000;
    for (number, format) in (1..).zip(Format::ALL) {
        let valid = fixture(format);
        for seed in 0..INPUTS_PER_FORMAT {
            let mut random = Random((number << 32 | seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut bytes = valid.clone();
            mutate(&mut bytes, &mut random);
            let _input = Input(&bytes);
            fuzz_one(Some(format), &bytes);
            fuzz_one(None, &bytes);
        }
    }
}

#[test]
fn damaged_compression_and_archives_are_refused() {
    let plain = fixture(Format::Replay).repeat(50);
    let mut tar = vec![0; 512];
    tar[..14].copy_from_slice(b"sdb.blktrace.3");
    tar[124..135].copy_from_slice(b"00000000310");
    tar[156] = b'0';
    tar[257..262].copy_from_slice(b"ustar");
    tar.extend(fixture(Format::Blktrace));
    tar.resize(2048, 0);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, &plain).unwrap();
    let inputs = [gzip.finish().unwrap(), zstd::encode_all(&plain[..], 3).unwrap(), tar];
    for (number, valid) in (1..).zip(&inputs) {
        fuzz_one(None, valid);
        for seed in 0..3000_u64 {
            let mut random = Random((number << 40 | seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut bytes = valid.clone();
            mutate(&mut bytes, &mut random);
            let _input = Input(&bytes);
            fuzz_one(None, &bytes);
        }
    }
}

/// Gives cargo-fuzz the fixtures to begin with:
/// `cargo test -p manylogs-workload --test mutation -- --ignored`.
#[test]
#[ignore = "writes fuzz/corpus"]
fn write_seeds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus");
    for format in Format::ALL {
        for target in [format.name(), "detect"] {
            let directory = corpus.join(format!("trace_{target}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join(format.name()), fixture(format)).unwrap();
        }
    }
}
