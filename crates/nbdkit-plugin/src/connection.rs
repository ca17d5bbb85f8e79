//! One client's connection: NBD's requests as the engine's.

use bytes::Bytes;
use manylogs_block::{Extent, ExtentKind, Hint, IoError, Payload, Request, SECTOR_BYTES, to_usize};
use manylogs_serve::{content, errno, sectors_around, sectors_exactly};
use nbdkit::{Error, ExtentHandle, ExtentType, Flags, FuaFlags, Result, Server};
use rustix::io::Errno;

use crate::config;
use crate::service::{self, Access};

/// A connection; nbdkit calls it from many threads.
pub(crate) struct Connection(Access);

/// The bindings share a connection between threads without asking whether that is allowed.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Connection>();
};

impl Connection {
    fn call(&self, request: Request) -> Result<Bytes> {
        self.0.port.call(request).map(|payload| content(&payload)).map_err(|error| refused(&error))
    }

    fn exactly(&self, offset: u64, count: usize) -> Result<Extent> {
        let found = sectors_exactly(self.0.capabilities.capacity, offset, count as u64);
        found.ok_or_else(|| invalid("not whole sectors within the export"))
    }
}

impl Server for Connection {
    fn name() -> &'static str {
        "manylogs"
    }

    fn longname() -> Option<&'static str> {
        Some("Manylogs volumes")
    }

    fn version() -> Option<&'static str> {
        Some(env!("CARGO_PKG_VERSION"))
    }

    fn config_help() -> Option<&'static str> {
        Some(config::HELP)
    }

    fn magic_config_key() -> Option<&'static str> {
        Some("device")
    }

    fn config(key: &str, value: &str) -> Result<()> {
        config::set(key, value)
    }

    fn config_complete() -> Result<()> {
        config::options().map(drop)
    }

    fn after_fork() -> Result<()> {
        service::start()
    }

    fn unload() {
        service::end();
    }

    fn open(_readonly: bool) -> Result<Box<dyn Server>> {
        Ok(Box::new(Self(service::access()?)))
    }

    fn get_size(&self) -> Result<i64> {
        i64::try_from(self.0.capabilities.capacity.bytes())
            .map_err(|error| Error::new(Errno::OVERFLOW.raw_os_error(), error))
    }

    fn is_rotational(&self) -> Result<bool> {
        Ok(self.0.capabilities.rotational)
    }

    fn can_write(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_flush(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_fua(&self) -> Result<FuaFlags> {
        Ok(FuaFlags::Native)
    }

    fn can_trim(&self) -> Result<bool> {
        Ok(self.0.capabilities.discard)
    }

    fn can_zero(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_fast_zero(&self) -> Result<bool> {
        Ok(self.0.capabilities.fast_zero)
    }

    /// All connections lead to one engine: a flush of any covers the writes of all.
    fn can_multi_conn(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_extents(&self) -> Result<bool> {
        Ok(true)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let extent = self.exactly(offset, buf.len())?;
        let found = self.call(Request::Read { extent })?;
        buf.copy_from_slice(found.get(..buf.len()).ok_or_else(|| invalid("a short read"))?);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64, flags: Flags) -> Result<()> {
        let extent = self.exactly(offset, buf.len())?;
        let payload = Payload::bytes(Bytes::copy_from_slice(buf));
        let fua = flags.contains(Flags::FUA);
        self.call(Request::Write { extent, payload, fua, hint: Hint::None }).map(drop)
    }

    fn flush(&self) -> Result<()> {
        self.call(Request::Flush).map(drop)
    }

    fn trim(&self, count: u32, offset: u64, flags: Flags) -> Result<()> {
        let extent = self.exactly(offset, to_usize(count.into()))?;
        self.call(Request::Discard { extent, fua: flags.contains(Flags::FUA) }).map(drop)
    }

    fn zero(&self, count: u32, offset: u64, flags: Flags) -> Result<()> {
        let extent = self.exactly(offset, to_usize(count.into()))?;
        let (fua, if_fast) = (flags.contains(Flags::FUA), flags.contains(Flags::FAST_ZERO));
        self.call(Request::WriteZeroes { extent, fua, if_fast }).map(drop)
    }

    fn extents(
        &self,
        count: u32,
        offset: u64,
        _flags: Flags,
        told: &mut ExtentHandle,
    ) -> Result<()> {
        let extent = sectors_around(self.0.capabilities.capacity, offset, count.into());
        let extent = extent.ok_or_else(|| invalid("not within the export"))?;
        let parts = self.0.port.extents(extent).map_err(|error| refused(&error))?;
        for (part, kind) in parts.iter() {
            let kind = match kind {
                ExtentKind::Data | ExtentKind::Logged => ExtentType::Allocated,
                ExtentKind::Zero => ExtentType::Zero,
                ExtentKind::Hole => ExtentType::HoleZero,
            };
            told.add(part.start.0 * SECTOR_BYTES, part.len.bytes(), kind)?;
        }
        Ok(())
    }
}

/// A request that failed. Of a server that is gone a client hears that it shuts down: nbdkit then
/// ends the connection, and clients that can connect again do.
fn refused(error: &IoError) -> Error {
    let number = match error {
        IoError::Gone => Errno::SHUTDOWN,
        error => errno(error),
    };
    Error::new(number.raw_os_error(), error.to_string())
}

fn invalid(message: &str) -> Error {
    Error::new(Errno::INVAL.raw_os_error(), message)
}
