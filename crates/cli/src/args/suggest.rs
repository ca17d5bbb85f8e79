//! Words that shells offer for an option that also takes others, as a file's path.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::Error;
use clap::{Arg, Command};
use manylogs_disk::profile;
use manylogs_workload::Format;

/// Takes any text, and tells completion scripts the words that are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suggest(fn() -> Vec<&'static str>);

/// The drives that come with the program. A profile's file will do, too.
pub(crate) const DRIVES: Suggest = Suggest(profile::drives);
/// Policies without options. Lists of them with options will do, too.
pub(crate) const POLICIES: Suggest = Suggest(manylogs_lab::replay::NamedPolicy::names);
/// Formats of traces that are read.
pub(crate) const FORMATS: Suggest = Suggest(|| Format::ALL.map(Format::name).to_vec());
/// Formats of traces that are written.
pub(crate) const FORMATS_WRITTEN: Suggest = Suggest(|| Format::WRITTEN.map(Format::name).to_vec());

impl TypedValueParser for Suggest {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}
