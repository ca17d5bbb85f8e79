//! The part of the tar format needed to find the files in an archive.

use std::path::PathBuf;

use crate::error::{TraceError, fault};
use crate::input::Input;

/// Headers and the padding of contents come in blocks of this size.
pub(crate) const BLOCK_BYTES: usize = 512;
/// Longest name of a trace file.
const MAX_NAME_BYTES: u64 = 64 << 10;

/// A regular file in an archive.
pub(crate) struct Member {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// Whether `beginning` is a tar header.
pub(crate) fn probe(beginning: &[u8]) -> bool {
    beginning.get(257..262) == Some(b"ustar")
}

/// Calls `visit` for each regular file, with `input` at the file's content; `visit` may
/// consume the content or leave it.
pub(crate) fn for_each_file(
    input: &mut Input,
    mut visit: impl FnMut(&Member, &mut Input) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut long_name = None;
    loop {
        let offset = input.offset();
        let header = input.peek(BLOCK_BYTES)?;
        let have = header.len();
        if have == 0 || header.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        if have < BLOCK_BYTES {
            return Err(input.cut_short(offset, "a tar header", have));
        }
        let Some(bytes) = size(header).filter(|_| probe(header)) else {
            let found = fault("a tar header", &header[..32]);
            return Err(input.bad_bytes(offset, found));
        };
        let (kind, path) = (header[156], name(header));
        input.consume(BLOCK_BYTES);
        let content = input.offset();
        if kind == b'L' && bytes <= MAX_NAME_BYTES {
            let text = input.peek(usize::try_from(bytes).unwrap_or(0))?;
            long_name = Some(PathBuf::from(printable_name(text)));
        } else if matches!(kind, b'0' | 0) {
            let path = long_name.take().unwrap_or(path);
            visit(&Member { path, bytes }, input)?;
        }
        let end = content.saturating_add(bytes).saturating_add(511) / 512 * 512;
        let left = end.saturating_sub(input.offset());
        let padding_only = left < BLOCK_BYTES as u64;
        if input.skip(left)? < left && !padding_only {
            return Err(input.cut_short(content, "the content of an archived file", 0));
        }
    }
}

/// The content's length: octal digits.
fn size(header: &[u8]) -> Option<u64> {
    let digits = header[124..136].split(|&byte| byte == 0 || byte == b' ').find(|d| !d.is_empty());
    let mut value = 0_u64;
    for &digit in digits.unwrap_or(b"0") {
        let digit = char::from(digit).to_digit(8)?;
        value = value << 3 | u64::from(digit);
    }
    Some(value)
}

/// The path: the prefix field, a slash, and the name field.
fn name(header: &[u8]) -> PathBuf {
    PathBuf::from(printable_name(&header[345..500])).join(printable_name(&header[..100]))
}

/// A name that ends at the first zero byte.
fn printable_name(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}
