//! Bounds of what a mount uses, and of how old it lets metadata become.

use manylogs_block::{Nanos, parse_bytes, parse_span};
use manylogs_ext4::Memory;

use super::{MountOptions, OptionError};

/// Shortest bound on the age of metadata.
const AGE_LEAST: Nanos = Nanos::from_secs(60);

impl MountOptions {
    /// Bounds the memory that the server uses, as `256M` or `1G`.
    ///
    /// # Errors
    /// [`OptionError::Memory`].
    pub fn bound_memory(&mut self, size: &str) -> Result<(), OptionError> {
        let bytes = parse_bytes(size).filter(|bytes| *bytes >= Memory::LEAST);
        self.memory = Some(bytes.ok_or_else(|| OptionError::Memory(size.to_owned()))?);
        Ok(())
    }

    /// Bounds how old metadata becomes in a journal that keeps it, as `24h` or `30m`; `off` is no
    /// bound.
    ///
    /// # Errors
    /// [`OptionError::Age`].
    pub fn bound_age(&mut self, span: &str) -> Result<(), OptionError> {
        let parsed = parse_span(span).filter(|span| *span >= AGE_LEAST);
        self.max_age = match (span, parsed) {
            ("off", _) => Some(None),
            (_, Some(span)) => Some(Some(span)),
            _ => return Err(OptionError::Age(span.to_owned())),
        };
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_metadata_has_a_bound_or_none() {
        let mut options = MountOptions::default();
        assert_eq!(options.max_age, None, "the usual");
        options.add("max-age=30m").unwrap();
        assert_eq!(options.max_age, Some(Some(Nanos::from_secs(1800))));
        options.add("max-age=off").unwrap();
        assert_eq!(options.max_age, Some(None));
        for bad in ["max-age=", "max-age=5s", "max-age=old", "max-age=-1h"] {
            let value = bad.trim_start_matches("max-age=").to_owned();
            assert_eq!(options.add(bad), Err(OptionError::Age(value)));
        }
    }
}
