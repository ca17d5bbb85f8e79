//! The negotiation before the first request.

use std::io;

use manylogs_block::Capabilities;
use manylogs_storage::SocketStream;

use super::protocol::{
    ALLOCATION, ALLOCATION_ID, FIXED_NEWSTYLE, Fields, GREETING, NO_ZEROES, OPTION_MAGIC,
    REQUEST_BYTES_MAX, answer, export_flag, length, option, option_reply,
};
use crate::channel::{Input, write_all};

/// The longest option that is accepted; a name may have 4096 bytes.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Block size preferred by the server: writes of smaller parts are slower.
const PREFERRED_BLOCK_BYTES: u32 = 4096;
/// Questions about an export.
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// Result of the negotiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Terms {
    /// Replies are structured.
    pub(super) structured: bool,
    /// The client asked for [`ALLOCATION`].
    pub(super) allocation: bool,
}

/// The transmission flags of the export.
fn flags(export: &Capabilities, structured: bool) -> u16 {
    use export_flag::{
        DF, FAST_ZERO, FLUSH, FUA, HAS_FLAGS, MULTI_CONN, ROTATIONAL, TRIM, WRITE_ZEROES,
    };
    // All connections lead to one engine: a flush of any covers the writes of all.
    let mut flags = HAS_FLAGS | FLUSH | FUA | WRITE_ZEROES | MULTI_CONN;
    let also = [
        (ROTATIONAL, export.rotational),
        (TRIM, export.discard),
        (FAST_ZERO, export.fast_zero),
        (DF, structured),
    ];
    for (flag, _) in also.iter().filter(|(_, set)| *set) {
        flags |= flag;
    }
    flags
}

/// Negotiates with a client that has just connected; `None` if the client ends without requests.
///
/// # Errors
/// The connection's, or [`io::ErrorKind::InvalidData`] from a client that speaks another protocol.
pub(super) async fn negotiate(
    input: &mut Input,
    stream: &SocketStream,
    export: &Capabilities,
) -> io::Result<Option<Terms>> {
    let mut greeting = [GREETING, OPTION_MAGIC].concat();
    greeting.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    write_all(stream, &greeting).await?;
    let client_flags = input.u32().await?;
    if client_flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let zeroes = client_flags & u32::from(NO_ZEROES) == 0;
    let mut terms = Terms::default();
    loop {
        if input.array().await? != OPTION_MAGIC {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (option, len) = (input.u32().await?, input.u32().await?);
        if len > OPTION_BYTES_MAX {
            input.skip(len.into()).await?;
            write_all(stream, &option_reply(option, answer::TOO_BIG, &[])).await?;
            continue;
        }
        let mut data = vec![0; manylogs_block::to_usize(len.into())];
        input.read_exact(&mut data).await?;
        match option {
            option::EXPORT_NAME => {
                write_all(stream, &old_answer(export, &terms, zeroes)).await?;
                return Ok(Some(terms));
            }
            option::ABORT => {
                // The client may be gone already.
                let _ = write_all(stream, &option_reply(option, answer::ACK, &[])).await;
                return Ok(None);
            }
            _ => {
                let (replies, begins) = replies(option, &data, export, &mut terms);
                write_all(stream, &replies).await?;
                if begins {
                    return Ok(Some(terms));
                }
            }
        }
    }
}

/// The answer to `EXPORT_NAME`, the one option whose reply has not the usual form.
fn old_answer(export: &Capabilities, terms: &Terms, zeroes: bool) -> Vec<u8> {
    let mut reply = export.capacity.bytes().to_be_bytes().to_vec();
    reply.extend(flags(export, terms.structured).to_be_bytes());
    reply.resize(reply.len() + if zeroes { 124 } else { 0 }, 0);
    reply
}

/// The replies to `option`, and whether requests follow.
fn replies(option: u32, data: &[u8], export: &Capabilities, terms: &mut Terms) -> (Vec<u8>, bool) {
    let say = |kind, data: &[u8]| option_reply(option, kind, data);
    let replies = match option {
        option::INFO | option::GO => {
            let info = information(option, data, export, terms);
            let begins = option == option::GO && info.is_some();
            return (info.unwrap_or_else(|| say(answer::INVALID, &[])), begins);
        }
        // There is one export, and every name stands for it.
        option::LIST if data.is_empty() => {
            let nameless = 0_u32.to_be_bytes();
            [say(answer::SERVER, &nameless), say(answer::ACK, &[])].concat()
        }
        option::STRUCTURED_REPLY if data.is_empty() => {
            terms.structured = true;
            say(answer::ACK, &[])
        }
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
            contexts(option, data, terms).unwrap_or_else(|| say(answer::INVALID, &[]))
        }
        option::LIST | option::STRUCTURED_REPLY => say(answer::INVALID, &[]),
        option::STARTTLS => {
            say(answer::POLICY, b"this server has no TLS: see --tls-certificates and --tls-psk")
        }
        _ => say(answer::UNSUPPORTED, &[]),
    };
    (replies, false)
}

/// Information about the export; `None` if the option is malformed.
fn information(option: u32, data: &[u8], export: &Capabilities, terms: &Terms) -> Option<Vec<u8>> {
    let mut data = Fields(data);
    data.text()?;
    let count = data.u16()?;
    let asked: Option<Vec<u16>> = (0..count).map(|_| data.u16()).collect();
    let (asked, say) = (asked?, |data: &[u8]| option_reply(option, answer::INFO, data));
    data.0.is_empty().then_some(())?;
    let mut about = INFO_EXPORT.to_be_bytes().to_vec();
    about.extend(export.capacity.bytes().to_be_bytes());
    about.extend(flags(export, terms.structured).to_be_bytes());
    let mut replies = say(&about);
    if asked.contains(&INFO_BLOCK_SIZE) {
        let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
        let [least, preferred, most] = [1, PREFERRED_BLOCK_BYTES, REQUEST_BYTES_MAX];
        sizes.extend([least, preferred, most].map(u32::to_be_bytes).concat());
        replies.extend(say(&sizes));
    }
    replies.extend(option_reply(option, answer::ACK, &[]));
    Some(replies)
}

/// The meta contexts that were asked for and exist; `None` if the option is malformed.
fn contexts(option: u32, data: &[u8], terms: &mut Terms) -> Option<Vec<u8>> {
    let (setting, mut data) = (option == option::SET_META_CONTEXT, Fields(data));
    if setting {
        terms.allocation = false;
    }
    terms.structured.then_some(())?;
    data.text()?;
    let count = data.u32()?;
    let mut found = count == 0 && !setting;
    for _ in 0..count {
        let query = data.text()?;
        // A list request may name the namespace alone.
        found |= query == ALLOCATION.as_bytes() || (!setting && query == b"base:");
    }
    data.0.is_empty().then_some(())?;
    let mut replies = Vec::new();
    if found {
        terms.allocation |= setting;
        let id = if setting { ALLOCATION_ID } else { 0 };
        let mut context = id.to_be_bytes().to_vec();
        context.extend(ALLOCATION.as_bytes());
        replies.extend(option_reply(option, answer::META_CONTEXT, &context));
    }
    replies.extend(option_reply(option, answer::ACK, &[]));
    debug_assert!(length(&replies) < OPTION_BYTES_MAX);
    Some(replies)
}

#[cfg(test)]
mod tests {
    use manylogs_block::Sectors;

    use super::*;

    const EXPORT: Capabilities = Capabilities {
        capacity: Sectors(16),
        physical_sector: Sectors(8),
        untorn: Sectors(8),
        rotational: true,
        volatile_cache: true,
        native_fua: true,
        discard: true,
        fast_zero: true,
    };

    /// A text, preceded by its length.
    fn text(text: &[u8]) -> Vec<u8> {
        [&length(text).to_be_bytes()[..], text].concat()
    }

    fn kinds(mut replies: &[u8]) -> Vec<u32> {
        let mut kinds = Vec::new();
        while !replies.is_empty() {
            let mut fields = Fields(&replies[12..]);
            kinds.push(fields.u32().unwrap());
            fields.text().unwrap();
            replies = fields.0;
        }
        kinds
    }

    #[test]
    fn the_export_is_told_and_transmission_begins() {
        let mut terms = Terms::default();
        let ask = [text(b"any name"), vec![0, 1, 0, 3]].concat();
        let (said, begins) = replies(option::GO, &ask, &EXPORT, &mut terms);
        assert_eq!(kinds(&said), [answer::INFO, answer::INFO, answer::ACK]);
        assert!(begins);
        let (_, begins) = replies(option::INFO, &ask, &EXPORT, &mut terms);
        assert!(!begins);
        let (said, begins) = replies(option::GO, &ask[..ask.len() - 1], &EXPORT, &mut terms);
        assert_eq!((kinds(&said), begins), (vec![answer::INVALID], false));
    }

    #[test]
    fn block_status_takes_structured_replies() {
        let asking =
            |context: &str| [text(b""), vec![0, 0, 0, 1], text(context.as_bytes())].concat();
        let set = |context: &str, terms: &mut Terms| {
            kinds(&replies(option::SET_META_CONTEXT, &asking(context), &EXPORT, terms).0)
        };
        let mut terms = Terms::default();
        assert_eq!(set(ALLOCATION, &mut terms), [answer::INVALID]);
        replies(option::STRUCTURED_REPLY, &[], &EXPORT, &mut terms);
        assert_eq!(set(ALLOCATION, &mut terms), [answer::META_CONTEXT, answer::ACK]);
        assert_eq!(terms, Terms { structured: true, allocation: true });
        assert_eq!(set("base:other", &mut terms), [answer::ACK]);
        assert_eq!(terms, Terms { structured: true, allocation: false });
    }

    #[test]
    fn the_flags_are_what_the_device_can_do() {
        use export_flag::{FAST_ZERO, ROTATIONAL, TRIM};
        let all = FAST_ZERO | ROTATIONAL | TRIM;
        assert_eq!(flags(&EXPORT, false) & all, all);
        let plain = Capabilities { fast_zero: false, discard: false, rotational: false, ..EXPORT };
        assert_eq!(flags(&plain, false) & all, 0);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let said =
            |option, data: &[u8]| kinds(&replies(option, data, &EXPORT, &mut Terms::default()).0);
        assert_eq!(said(option::STARTTLS, &[]), [answer::POLICY]);
        assert_eq!(said(99, &[1, 2, 3]), [answer::UNSUPPORTED]);
        assert_eq!(said(option::LIST, &[1]), [answer::INVALID]);
        assert_eq!(said(option::LIST, &[]), [answer::SERVER, answer::ACK]);
    }
}
