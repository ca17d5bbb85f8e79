//! Frames between clients and stores: they arrive as they were sent, and bytes of strangers are
//! refused without a panic and without taking memory.

use bytes::Bytes;
use manylogs_block::{Extent, IoError, Nanos, Payload, Sectors};
use manylogs_everest::net::{
    AnswerPart, Answers, FRAME_HEAD_BYTES, Frame, FrameError, FrameHead, FrameKind, Hello, LiesOn,
    Welcome,
};
use manylogs_everest::{
    Ask, Call, LenderError, Load, Opening, Part, Range, Reply, Session, Version,
};
use proptest::prelude::*;

const MOST: usize = 1 << 20;

/// Encodes a frame and decodes it again, as a connection does.
fn carried(frame: Frame) -> Result<Frame, FrameError> {
    arrived(&frame.encode().concat())
}

/// The first frame in the bytes.
fn arrived(bytes: &[u8]) -> Result<Frame, FrameError> {
    let (head, body) =
        bytes.split_first_chunk::<FRAME_HEAD_BYTES>().ok_or(FrameError::NotAFrame)?;
    let head = FrameHead::parse(head, MOST)?;
    let body = body.get(..head.len()).ok_or(FrameError::Checksum)?;
    head.frame(Bytes::copy_from_slice(body))
}

fn extent() -> impl Strategy<Value = Extent> {
    (0..1_u64 << 47, 1..200_u64).prop_map(|(start, len)| Extent::new(start, len))
}

/// Content of that length, of every kind.
fn content(len: u64) -> impl Strategy<Value = Payload> {
    (0..=len, any::<u8>(), any::<u32>()).prop_map(move |(cut, byte, tag)| {
        let mut payload = Payload::default();
        if cut > 0 {
            let bytes: Vec<u8> =
                (0..cut).flat_map(|at| [byte ^ u8::from(at % 2 == 0); 512]).collect();
            payload.append(Payload::bytes(bytes));
        }
        let rest = Sectors(len - cut);
        if rest.0 > 0 {
            payload.append(match byte % 3 {
                0 => Payload::zeroes(rest),
                1 => Payload::tags(tag.into(), rest),
                _ => Payload::absent(rest),
            });
        }
        payload
    })
}

fn opening() -> impl Strategy<Value = Opening> {
    (any::<u32>(), any::<u64>()).prop_map(|(incarnation, token)| Opening { incarnation, token })
}

fn ask() -> impl Strategy<Value = Ask> {
    let version = || any::<u64>().prop_map(Version);
    let written = extent().prop_flat_map(|extent| (Just(extent), content(extent.len.0)));
    prop_oneof![
        prop::collection::vec(opening(), 0..40).prop_map(|lineage| Ask::Claim { lineage }),
        (written, version()).prop_map(|((extent, content), version)| Ask::Write {
            extent,
            version,
            content: Some(content)
        }),
        (extent(), version()).prop_map(|(extent, version)| Ask::Write {
            extent,
            version,
            content: None
        }),
        (extent(), version()).prop_map(|(extent, version)| Ask::Delete { extent, version }),
        extent().prop_map(|extent| Ask::Read { extent }),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    (any::<[u8; 16]>(), opening(), any::<u32>(), any::<u64>(), ask()).prop_map(
        |(base, opening, session, number, ask)| Call {
            base,
            session: Session { opening, number: session },
            number,
            ask,
        },
    )
}

fn reply() -> impl Strategy<Value = Result<Reply, LenderError>> {
    let range = || {
        (extent(), any::<u64>())
            .prop_map(|(extent, version)| Range { extent, version: Version(version) })
    };
    let part = extent().prop_flat_map(|extent| {
        let stored = (any::<u64>(), content(extent.len.0));
        let stored =
            prop::option::of(stored.prop_map(|(version, content)| (Version(version), content)));
        (Just(extent), stored).prop_map(|(extent, stored)| Part { extent, stored })
    });
    prop_oneof![
        Just(Ok(Reply::Done)),
        prop::collection::vec(range(), 0..100).prop_map(|ranges| Ok(Reply::Held(ranges))),
        prop::collection::vec(part, 0..4).prop_map(|parts| Ok(Reply::Found(parts))),
        extent().prop_map(|extent| Err(IoError::NoSpace { extent }.into())),
        extent().prop_map(|extent| Err(IoError::Checksum { extent }.into())),
        Just(Err(LenderError::NoSession)),
        Just(Err(LenderError::Repeated)),
        Just(Err(LenderError::Newer)),
        Just(Err(LenderError::Foreign)),
        Just(Err(IoError::Gone.into())),
    ]
}

/// Runs every decoder on the frame.
fn decode_all(frame: &Frame) {
    let _ = Hello::decode(frame);
    let _ = Welcome::decode(frame);
    let _ = Call::decode(frame);
    let _ = Answers::default().take(frame);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_call_arrives_as_it_was_sent(call in call(), number in any::<u64>()) {
        let frame = carried(call.encode(number)).unwrap();
        prop_assert_eq!(frame.number, number);
        let arrived = Call::decode(&frame).unwrap();
        prop_assert_eq!(format!("{arrived:?}"), format!("{call:?}"));
    }

    #[test]
    fn an_answer_arrives_as_it_was_sent(reply in reply(), number in any::<u64>()) {
        let load = Load { in_flight: 7, wait: Nanos::from_millis(3) };
        let mut answers = Answers::default();
        let frames = Answers::encode(&reply, number, load);
        let last = frames.len() - 1;
        for (at, frame) in frames.into_iter().enumerate() {
            let frame = carried(frame).unwrap();
            prop_assert_eq!((frame.number, frame.load), (number, load));
            match answers.take(&frame).unwrap() {
                AnswerPart::Whole(whole) => {
                    prop_assert_eq!(at, last);
                    prop_assert_eq!(&whole, &reply);
                }
                AnswerPart::More => prop_assert!(at < last),
            }
        }
    }

    /// A flipped bit is noticed at every place.
    #[test]
    fn damage_is_noticed(call in call(), place in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut bytes = call.encode(9).encode().concat();
        let at = place.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(arrived(&bytes).is_err());
    }

    #[test]
    fn a_frame_that_ends_early_is_none(call in call(), place in any::<prop::sample::Index>()) {
        let bytes = call.encode(9).encode().concat();
        prop_assert!(arrived(&bytes[..place.index(bytes.len())]).is_err());
    }

    /// The checksum is right and the body is random, as from a malicious peer.
    #[test]
    fn bodies_of_strangers_are_refused_or_read(
        kind in 0..5_usize,
        more in any::<bool>(),
        body in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let kinds = [
            FrameKind::Hello, FrameKind::Welcome, FrameKind::Call, FrameKind::Answer,
            FrameKind::Load,
        ];
        let frame = Frame { more, ..Frame::new(kinds[kind], vec![body.into()]) };
        decode_all(&carried(frame).unwrap());
    }

    /// Valid messages with some bytes changed: decoders read further in them than in random bytes.
    #[test]
    fn changed_messages_are_refused_or_read(
        call in call(),
        reply in reply(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let frames = Answers::encode(&reply, 1, Load::default());
        for frame in frames.into_iter().chain([call.encode(1)]) {
            let mut body = frame.body.concat();
            for (place, byte) in &changes {
                let at = place.index(body.len());
                body[at] = *byte;
            }
            decode_all(&carried(Frame { body: vec![body.into()], ..frame }).unwrap());
        }
    }

    #[test]
    fn bytes_of_strangers_are_no_frames(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(arrived(&bytes).is_err());
    }
}

#[test]
fn all_that_a_store_holds_arrives_in_many_frames() {
    let ranges: Vec<Range> = (0..100_001)
        .map(|n| Range { extent: Extent::new(8 * n, 8), version: Version(n) })
        .collect();
    let frames = Answers::encode(&Ok(Reply::Held(ranges.clone())), 3, Load::default());
    assert_eq!(frames.len(), 3);
    let mut answers = Answers::default();
    for (at, frame) in frames.iter().enumerate() {
        let part = answers.take(&carried(frame.clone()).unwrap()).unwrap();
        match part {
            AnswerPart::More => assert!(at < 2),
            AnswerPart::Whole(whole) => {
                assert!(at == 2 && whole == Ok(Reply::Held(ranges.clone())));
            }
        }
    }
    // An answer to another call in between, and one whose rest is of another kind.
    let mut answers = Answers::default();
    answers.take(&frames[0]).unwrap();
    assert!(answers.take(&Frame { number: 4, ..frames[1].clone() }).is_err());
    let mut answers = Answers::default();
    answers.take(&frames[0]).unwrap();
    let done = Answers::encode(&Ok(Reply::Done), 3, Load::default());
    assert!(answers.take(&done[0]).is_err());
}

#[test]
fn frames_are_bounded_and_of_this_version() {
    let frame = Frame::new(FrameKind::Hello, vec![vec![0; MOST + 1].into()]);
    let most = MOST;
    assert_eq!(carried(frame), Err(FrameError::TooLong { len: MOST + 1, most }));
    let mut other = Hello { base: [7; 16] }.encode().encode().concat();
    other[4] = 1;
    assert_eq!(arrived(&other), Err(FrameError::Version { found: 1 }));
    assert_eq!(
        arrived(b"NBDMAGIC and whatever else a server says first"),
        Err(FrameError::NotAFrame)
    );
    let hello = Hello { base: [7; 16] };
    assert_eq!(Hello::decode(&carried(hello.encode()).unwrap()), Ok(hello));
    let lies_on = LiesOn::new([3; 16], vec![7, 1 << 40]);
    let welcome = Welcome { store: [9; 16], longest_write: Sectors(99), lies_on };
    assert_eq!(Welcome::decode(&carried(welcome.clone().encode()).unwrap()), Ok(welcome));
    assert!(Welcome::decode(&hello.encode()).is_err());
}
