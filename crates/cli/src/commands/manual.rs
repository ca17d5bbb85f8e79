//! Man pages and completions for shells, both made from the command line's definition.

mod examples;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use crate::output::print;

/// Exit codes and their meanings, as in the help.
const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "The command did what it was asked."),
    ("1", "It failed."),
    ("2", "The command line or the input is wrong."),
    ("3", "The volume is damaged, but nothing is lost."),
    ("4", "Acknowledged data is lost."),
    ("5", "The device is in use, or would be overwritten."),
    ("6", "The user has no permission."),
    ("7", "Another version of the program wrote the volume."),
    ("130", "The user ended the command by Ctrl-C. Finished results were reported."),
];

const FILES: &[(&str, &str)] = &[
    (
        "/run/manylogs, $XDG_RUNTIME_DIR/manylogs",
        "Control sockets, locks and mount points of servers, of root and of other users.",
    ),
    ("/run/manylogs/by-id/UUID", "Link to the block device that serves the volume of this id."),
    ("/etc/systemd/system/manylogs@.service", "Serves a volume when its disk appears."),
    (
        "/etc/systemd/system/manylogs-chain@.service",
        "Serves a chain of drives when its disks appear.",
    ),
    (
        "/etc/manylogs/drives, ~/.config/manylogs/drives, $MANYLOGS_DRIVES",
        "Own profiles of drives, NAME.toml, of root and of other users.",
    ),
];

/// Writes one page for each command.
pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    let written = fs::create_dir_all(&args.dir).and_then(|()| pages(&all, &all, &args.dir));
    written.map_err(|error| {
        let message = format!("cannot write man pages to {}: {error}", args.dir.display());
        Failure::of_given(&error, message)
    })
}

/// The page of `command` and those of its subcommands.
fn pages(command: &Command, all: &Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, all, directory)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let page = Man::new(command.clone()).manual("Manylogs");
    let mut file = File::create(directory.join(page.get_filename()))?;
    page.render(&mut file)?;
    file.write_all(further_sections(&name, all).as_bytes())
}

fn further_sections(name: &str, all: &Command) -> String {
    let mut out = String::new();
    let examples = examples::of(name);
    if !examples.is_empty() {
        out += ".SH EXAMPLES\n";
        out += &examples.iter().map(|(line, what)| item(line, what)).collect::<String>();
    }
    out += ".SH \"EXIT STATUS\"\n";
    out += &EXIT_STATUS.iter().map(|(code, meaning)| item(code, meaning)).collect::<String>();
    out += ".SH FILES\n";
    out += &FILES.iter().map(|(path, what)| item(path, what)).collect::<String>();
    out + ".SH \"SEE ALSO\"\n" + &see_also(name, all)
}

/// An entry of a list: a term and the text below it.
fn item(term: &str, text: &str) -> String {
    format!(".TP\n\\fB{}\\fR\n{}\n", escaped(term), escaped(text))
}

/// Pages of the main command: all others. Other pages: the main command and its neighbours.
fn see_also(name: &str, all: &Command) -> String {
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set());
    let names = shown.filter_map(Command::get_display_name);
    let others = std::iter::once(all.get_name()).chain(names).filter(|other| *other != name);
    let pages: Vec<String> = others.map(|other| format!("\\fB{}\\fR(1)", escaped(other))).collect();
    pages.join(",\n") + "\n"
}

/// Text in which no character has a meaning for roff.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "manylogs", &mut script);
    print(&String::from_utf8_lossy(&script))
}
