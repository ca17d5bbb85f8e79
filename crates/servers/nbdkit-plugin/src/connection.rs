//! Connection of one client: translates requests of NBD for the engine.

use bytes::Bytes;
use manylogs_block::{ExtentKind, IoError, Payload, SECTOR_BYTES, to_usize};
use manylogs_serve::{Call, Operation, content as content_of, nbd_errno};
use nbdkit::{Error, ExtentHandle, ExtentType, Flags, FuaFlags, Result, Server};
use rustix::io::Errno;

use crate::config;
use crate::service::{self, Access};

/// A connection; nbdkit calls it from many threads.
pub(crate) struct Connection(Access);

/// The bindings share a connection between threads without checking that its type allows it.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Connection>();
};

impl Connection {
    /// Carries `call` out. A write takes its data from `bytes`; a read returns its data.
    fn perform(&self, call: Call, bytes: &[u8]) -> Result<Bytes> {
        let content = |_| Ok(Payload::bytes(Bytes::copy_from_slice(bytes)));
        let request = call.request(self.0.capabilities.capacity, content);
        let request = request
            .map_err(|refused| Error::new(refused.errno().raw_os_error(), refused.to_string()))?;
        let answer = self.0.port.call(request).map_err(|error| refused(&error))?;
        Ok(content_of(&answer))
    }
}

/// A call, from the arguments that nbdkit passes.
fn call(operation: Operation, offset: u64, count: usize, flags: Flags) -> Call {
    Call {
        fua: flags.contains(Flags::FUA),
        if_fast: flags.contains(Flags::FAST_ZERO),
        ..Call::new(operation, offset, count as u64)
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
        let found = self.perform(call(Operation::Read, offset, buf.len(), Flags::empty()), &[])?;
        buf.copy_from_slice(found.get(..buf.len()).ok_or_else(|| invalid("a short read"))?);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64, flags: Flags) -> Result<()> {
        self.perform(call(Operation::Write, offset, buf.len(), flags), buf).map(drop)
    }

    fn flush(&self) -> Result<()> {
        self.perform(Call::new(Operation::Flush, 0, 0), &[]).map(drop)
    }

    fn trim(&self, count: u32, offset: u64, flags: Flags) -> Result<()> {
        let count = to_usize(count.into());
        self.perform(call(Operation::Discard, offset, count, flags), &[]).map(drop)
    }

    fn zero(&self, count: u32, offset: u64, flags: Flags) -> Result<()> {
        let count = to_usize(count.into());
        self.perform(call(Operation::WriteZeroes, offset, count, flags), &[]).map(drop)
    }

    fn extents(
        &self,
        count: u32,
        offset: u64,
        _flags: Flags,
        told: &mut ExtentHandle,
    ) -> Result<()> {
        let range = Call::new(Operation::Read, offset, count.into());
        let around = range.around(self.0.capabilities.capacity);
        let around = around.ok_or_else(|| invalid("not within the export"))?;
        let parts = self.0.port.extents(around.extent).map_err(|error| refused(&error))?;
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

/// The error of a failed request. If the engine is gone the client hears that the server shuts
/// down, and nbdkit ends the connection.
fn refused(error: &IoError) -> Error {
    Error::new(nbd_errno(error).raw_os_error(), error.to_string())
}

fn invalid(message: &str) -> Error {
    Error::new(Errno::INVAL.raw_os_error(), message)
}
