//! `manylogs drive new`: a profile of the user's own, from the figures of a data sheet.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use manylogs_disk::profile::sheet::{Key, Quantity};
use manylogs_disk::profile::{Library, Sheet, is_name};

use super::{assumptions, profile_failure};
use crate::args::drive::NewArgs;
use crate::failure::Failure;
use crate::output::{Output, print};

/// Options, with the question to ask if one is missing.
const QUESTIONS: [(Key, &str); 8] = [
    (Key::Capacity, "capacity, as on the label (18T)"),
    (Key::Rpm, "revolutions a minute (7200)"),
    (Key::Outer, "sustained rate outside, MB/s (270)"),
    (Key::Inner, "sustained rate inside, MB/s (130)"),
    (Key::Seek, "average seek of reads, ms (8.5)"),
    (Key::TrackToTrack, "seek to the next track, ms (0.5)"),
    (Key::Cache, "buffer (256M)"),
    (Key::Heads, "recording surfaces (20)"),
];

pub(crate) fn run(args: &NewArgs) -> Result<(), Failure> {
    check_name(&args.name)?;
    let library = Library::of_user();
    let to_folder = library.folder().join(format!("{}.toml", args.name));
    let path = args.output.clone().unwrap_or(to_folder);
    let prints = path == Path::new("-");
    if !prints && path.exists() && !args.force {
        return Err(Failure::Busy(format!(
            "{} is there already: give --force to overwrite it",
            path.display()
        )));
    }
    let sheet = sheet(args)?;
    for serial in &sheet.serials {
        check_serial(&library, serial, &path)?;
    }
    let text = sheet.toml();
    // A sheet that makes no valid drive is refused before it is written.
    let profile = sheet.profile(&args.name).map_err(|error| profile_failure(&error))?;
    if prints {
        return print(&text);
    }
    write(&path, &text)?;
    let mut told = format!("{}: written\n", path.display());
    if let Some(text) = profile.sheet.as_deref().and_then(assumptions) {
        let _ = writeln!(told, "{text}");
    }
    let own = args.output.is_none();
    let name = if own { args.name.clone() } else { path.display().to_string() };
    let _ = writeln!(told, "next: manylogs advise TRACE --drive {name}");
    print(&told)
}

fn check_name(name: &str) -> Result<(), Failure> {
    if is_name(name) {
        return Ok(());
    }
    Err(Failure::input(format!(
        "NAME: expected letters, digits, dots, hyphens and underscores (64 at most), found \
         {name:?}: a name is no path; --output FILE writes elsewhere"
    )))
}

/// Refuses a serial number that another profile has.
fn check_serial(library: &Library, serial: &str, path: &Path) -> Result<(), Failure> {
    let found = library.of_serial(serial).map_err(|error| profile_failure(&error))?;
    match found {
        Some(other) if other.path != path => Err(Failure::Busy(format!(
            "--serial {serial}: {} is the profile of that disk; take the number out of it first",
            other.path.display()
        ))),
        _ => Ok(()),
    }
}

/// The data sheet from the options; asks for figures that they leave out.
fn sheet(args: &NewArgs) -> Result<Sheet, Failure> {
    let mut sheet = Sheet::new(&args.name);
    let given = |key| match key {
        Key::Capacity => &args.capacity,
        Key::Rpm => &args.rpm,
        Key::Outer => &args.outer,
        Key::Inner => &args.inner,
        Key::Seek => &args.seek,
        Key::TrackToTrack => &args.track_to_track,
        Key::Cache => &args.cache,
        _ => &args.heads,
    };
    let asks = io::stdin().is_terminal() && io::stderr().is_terminal();
    for (key, question) in QUESTIONS {
        let required = matches!(key, Key::Capacity | Key::Rpm);
        let option = || format!("--{}", option(key));
        let text = match given(key) {
            Some(text) => Some(text.clone()),
            None if asks => ask(question, required)?,
            None if required => {
                return Err(Failure::input(format!(
                    "{} is required: {question}, from the drive's label or data sheet",
                    option()
                )));
            }
            None => None,
        };
        let Some(text) = text else { continue };
        let value = Quantity::Text(text).value(key.kind());
        let value =
            value.map_err(|expected| Failure::input(format!("{}: {expected}", option())))?;
        sheet.state(key, value, "data sheet");
    }
    sheet.link = args.link;
    sheet.shingled = args.shingled;
    sheet.like.clone_from(&args.like);
    sheet.model = args.model.clone().unwrap_or_default();
    sheet.serials.clone_from(&args.serial);
    Ok(sheet)
}

const fn option(key: Key) -> &'static str {
    match key {
        Key::Capacity => "capacity",
        Key::Rpm => "rpm",
        Key::Outer => "outer",
        Key::Inner => "inner",
        Key::Seek => "seek",
        Key::TrackToTrack => "track-to-track",
        Key::Cache => "cache",
        _ => "heads",
    }
}

/// Asks a question; `None` if the user gives no answer.
fn ask(question: &str, required: bool) -> Result<Option<String>, Failure> {
    let unknown = if required { "" } else { "; nothing if you do not know" };
    loop {
        eprint!("{question}{unknown}: ");
        // If the question cannot be printed there will be no answer either.
        let _ = io::stderr().flush();
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line).map_err(Failure::failed)? == 0 {
            return Err(Failure::input("no answer: nothing was written"));
        }
        let answer = line.trim();
        if !answer.is_empty() || !required {
            return Ok(Some(answer.to_owned()).filter(|answer| !answer.is_empty()));
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|error| {
            Failure::of_io(&error, format!("cannot make {}: {error}", folder.display()))
        })?;
    }
    Output::reserve(path)?.write(text.as_bytes())
}
