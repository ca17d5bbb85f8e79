//! The list of commands that `manylogs --help` prints: by who needs them.

use clap::{Command, CommandFactory};

use super::Cli;

/// Commands with the heading that they are listed under.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Would it help my disk?",
        &["record", "trace", "drive", "advise", "replay", "sweep", "fleet", "interfere"],
    ),
    (
        "Volumes and chains of drives:",
        &[
            "format",
            "serve",
            "list",
            "member",
            "status",
            "top",
            "metrics",
            "set",
            "checkpoint",
            "drain",
            "table",
            "scrub",
            "check",
            "grow",
            "stop",
            "probe",
            "dump",
        ],
    ),
    ("Lending and borrowing disks:", &["lend", "stores"]),
    ("File systems:", &["fs"]),
    ("Papers and proofs:", &["reproduce", "chain", "episodes", "torture"]),
];
/// The list of commands begins with an empty line of its own.
const TEMPLATE: &str =
    "{about-with-newline}\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}\n";
/// Where what a command does begins, and where its line ends: every terminal is as wide.
const COLUMN: usize = 14;
const WIDTH: usize = 80;

/// The command line, whose help lists commands in groups.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let list = list(&command);
    command.help_template(TEMPLATE).after_help(list.clone()).after_long_help(list)
}

fn list(command: &Command) -> String {
    let row = |name: &&str| {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        row(name, &about.map(ToString::to_string).unwrap_or_default())
    };
    let group = |(heading, names): &(&str, &[&str])| {
        format!("{heading}\n{}", names.iter().map(row).collect::<String>())
    };
    let groups: Vec<String> = GROUPS.iter().map(group).collect();
    groups.join("\n").trim_end().to_owned()
}

/// A command and what it does, on as many lines as that takes.
fn row(name: &str, about: &str) -> String {
    let mut lines = vec![format!("  {name:width$}", width = COLUMN - 2)];
    for word in about.split_whitespace() {
        let last = lines.last().map_or(0, String::len);
        if last > COLUMN && last + 1 + word.len() > WIDTH {
            lines.push(" ".repeat(COLUMN));
        }
        let Some(line) = lines.last_mut() else { continue };
        if line.len() > COLUMN {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_is_listed_once_and_no_line_is_too_long() {
        let command = command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let shown: BTreeSet<&str> = shown.map(Command::get_name).collect();
        let listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(listed.len(), shown.len());
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), shown);
        assert!(list(&command).lines().all(|line| line.len() <= WIDTH));
    }
}
