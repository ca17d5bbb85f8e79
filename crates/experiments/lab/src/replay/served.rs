//! Where the requests of a replay are served: at home or in the logs.

use manylogs::{Volume, WritePaths};
use manylogs_block::Request;

/// Where a request is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Served {
    /// At its home. A plain drive serves every read and write there.
    Home,
    /// In the logs, or in memory on the way there; of a read at least a part.
    Log,
    /// A write of which a part is logged and the rest goes home.
    Both,
    /// A write for which this is decided later: it finds the logs full, or waits in memory to go
    /// home with its neighbours, unless a flush logs it first.
    Later,
    /// A flush or a discard.
    #[default]
    Nowhere,
}

impl Served {
    /// Names in tables, in the order of the variants.
    pub const NAMES: [&'static str; 5] = ["home", "log", "both", "later", ""];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Where a read or write was served that a volume took while its counts went from `before` to
    /// `after`. A volume decides before it returns from the call that takes a request.
    fn between(before: WritePaths, after: WritePaths) -> Self {
        let is_logged = after.logged > before.logged || after.redirected > before.redirected;
        if after.gathered > before.gathered {
            // The call may also have sent home, or logged, writes that waited before.
            return Self::Later;
        }
        match (is_logged, after.home > before.home) {
            (true, true) => Self::Both,
            (true, false) => Self::Log,
            (false, false) if after.starved > before.starved => Self::Later,
            (false, _) => Self::Home,
        }
    }
}

/// Says where each request is served that the device takes.
#[derive(Clone, Debug, Default)]
pub(super) enum Watch {
    /// Nobody asks.
    #[default]
    Off,
    /// The device is a plain drive.
    Plain,
    /// The device is this volume.
    Volume(Volume),
}

impl Watch {
    /// Hands `request` over by `submit`, and says where it is served.
    pub(super) fn over<T>(
        &self,
        request: Request,
        submit: impl FnOnce(Request) -> T,
    ) -> (T, Served) {
        let moves_data = matches!(
            request,
            Request::Read { .. } | Request::Write { .. } | Request::WriteZeroes { .. }
        );
        match self {
            Self::Plain if moves_data => (submit(request), Served::Home),
            Self::Volume(volume) if moves_data => {
                let before = volume.write_paths();
                let taken = submit(request);
                (taken, Served::between(before, volume.write_paths()))
            }
            _ => (submit(request), Served::Nowhere),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_say_where_a_request_went() {
        let none = WritePaths::default();
        let of = |after| Served::between(none, after);
        assert_eq!(of(none), Served::Home);
        assert_eq!(of(WritePaths { home: 1, ..none }), Served::Home);
        assert_eq!(of(WritePaths { logged: 1, ..none }), Served::Log);
        assert_eq!(of(WritePaths { redirected: 1, ..none }), Served::Log);
        assert_eq!(of(WritePaths { logged: 2, home: 1, ..none }), Served::Both);
        assert_eq!(of(WritePaths { starved: 1, ..none }), Served::Later);
        assert_eq!(of(WritePaths { gathered: 1, home: 3, ..none }), Served::Later);
        let sent_home = WritePaths { starved: 1, home: 1, ..none };
        assert_eq!(of(sent_home), Served::Home, "the logs were full, and the block was free");
    }
}
