//! A device in memory: durable, instant, and no larger than what was written to it.

use std::cell::RefCell;

use crate::{
    BlockDevice, Capabilities, Completion, Extent, ExtentKind, Extents, IoResult, Media, Payload,
    Request, Sectors,
};

/// A device in memory.
#[derive(Debug)]
pub struct MemoryDevice {
    capabilities: Capabilities,
    media: RefCell<Media>,
}

impl MemoryDevice {
    /// An empty device.
    #[must_use]
    pub fn new(capacity: Sectors) -> Self {
        let capabilities = Capabilities {
            capacity,
            physical_sector: Sectors(1),
            untorn: Sectors(1),
            rotational: false,
            volatile_cache: false,
            native_fua: true,
            discard: true,
            fast_zero: true,
        };
        Self { capabilities, media: RefCell::default() }
    }

    /// A device that holds `media`.
    #[must_use]
    pub fn holding(capacity: Sectors, media: Media) -> Self {
        Self { media: RefCell::new(media), ..Self::new(capacity) }
    }

    /// A copy of the content.
    #[must_use]
    pub fn media(&self) -> Media {
        self.media.borrow().clone()
    }

    fn apply(&self, request: Request) -> IoResult {
        self.capabilities.check(&request)?;
        let mut media = self.media.borrow_mut();
        match request {
            Request::Read { extent } => return Ok(media.read(extent)),
            Request::Write { extent, payload, .. } => media.write(extent, &payload),
            Request::Discard { extent, .. } | Request::WriteZeroes { extent, .. } => {
                media.zero(extent);
            }
            Request::Flush => {}
        }
        Ok(Payload::default())
    }
}

impl BlockDevice for MemoryDevice {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn submit(&self, request: Request) -> Completion {
        Completion::ready(self.apply(request))
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        let content = self.apply(Request::Read { extent: within });
        let known = |content| Extents::of_content(within, &content, ExtentKind::Hole);
        Completion::ready(content.map(known))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::future::Future;

    use super::*;
    use crate::{IoError, Rng};

    fn now<T>(completion: Completion<T>) -> IoResult<T> {
        use std::task::{Context, Poll, Waker};
        let mut completion = std::pin::pin!(completion);
        match completion.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("memory answers at once"),
        }
    }

    /// The model knows of each sector whether it holds something.
    #[test]
    fn extents_are_those_of_the_sectors_that_hold_something() {
        const SECTORS: u64 = 64;
        let device = MemoryDevice::new(Sectors(SECTORS));
        let mut model = vec![false; crate::to_usize(SECTORS)];
        let mut rng = Rng::new(7);
        for step in 1..2000 {
            let len = 1 + rng.below(9);
            let extent = Extent::new(rng.below(SECTORS - len + 1), len);
            let request = match rng.below(4) {
                0 => Request::Discard { extent, fua: rng.one_in(2) },
                1 => Request::WriteZeroes { extent, fua: false, if_fast: rng.one_in(2) },
                _ => Request::write_fua(extent, Payload::tags(step * SECTORS, extent.len)),
            };
            let holds = matches!(request, Request::Write { .. });
            now(device.submit(request)).unwrap();
            extent.range().for_each(|at| model[crate::to_usize(at)] = holds);
            let within = Extent::new(rng.below(32), 1 + rng.below(32));
            let known = now(device.extents(within)).unwrap();
            assert_eq!(known.whole(), within);
            for (part, kind) in known.iter() {
                let wanted = kind == ExtentKind::Data;
                assert!(part.range().all(|at| model[crate::to_usize(at)] == wanted), "{known:?}");
            }
        }
        let beyond = now(device.extents(Extent::new(60, 5)));
        assert!(matches!(beyond, Err(IoError::OutOfRange { .. })));
    }

    /// A device that knows no kinds of its sectors, and has no fast zeroing.
    struct Plain(MemoryDevice);

    impl BlockDevice for Plain {
        fn capabilities(&self) -> Capabilities {
            Capabilities { fast_zero: false, ..self.0.capabilities() }
        }

        fn submit(&self, request: Request) -> Completion {
            match self.capabilities().check(&request) {
                Ok(()) => self.0.submit(request),
                Err(error) => Completion::ready(Err(error)),
            }
        }
    }

    #[test]
    fn a_device_that_knows_nothing_says_data_and_zeroes_at_its_own_pace() {
        let device = Plain(MemoryDevice::new(Sectors(8)));
        let whole = Extent::new(0, 8);
        assert_eq!(now(device.extents(whole)), Ok(Extents::of(whole, ExtentKind::Data)));
        assert!(now(device.extents(Extent::new(8, 1))).is_err());
        let zeroes = |if_fast| Request::WriteZeroes { extent: whole, fua: false, if_fast };
        assert_eq!(now(device.submit(zeroes(true))), Err(IoError::Unsupported));
        assert!(now(device.submit(zeroes(false))).is_ok());
    }
}
