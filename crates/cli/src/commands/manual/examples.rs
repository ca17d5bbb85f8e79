//! Examples of the man pages: for each command, lines of the shell and what they do.

/// A command line and its purpose.
type Example = (&'static str, &'static str);

/// Pages and their examples. The name of a page joins command and subcommand by hyphens.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "manylogs",
        &[
            (
                "manylogs advise server.trace --drive exos-x20",
                "says whether a volume would help this load on this drive",
            ),
            ("manylogs format /dev/sdb", "makes a volume on a disk"),
            ("manylogs serve /dev/sdb --loop", "serves it as a block device"),
            ("manylogs stop /dev/sdb", "ends the server in order"),
        ],
    ),
    (
        "manylogs-record",
        &[(
            "manylogs record /dev/sdb --seconds 600 -o server.trace",
            "records the requests to a disk for ten minutes",
        )],
    ),
    (
        "manylogs-reproduce",
        &[
            ("manylogs reproduce --list", "says which figures there are, and what they take"),
            (
                "manylogs reproduce manylogs --only fig6a --scale 1",
                "runs a small part of one figure",
            ),
        ],
    ),
    (
        "manylogs-trace-convert",
        &[("manylogs trace convert web.csv.zst -o web.trace", "writes any trace in our format")],
    ),
    ("manylogs-trace-stat", &[("manylogs trace stat server.trace", "shows what a trace asks for")]),
    ("manylogs-drive-list", &[("manylogs drive list", "lists the modelled drives")]),
    (
        "manylogs-drive-new",
        &[(
            "manylogs drive new backup-1 --capacity 18T --rpm 7200 --outer 270 --seek 8.5",
            "keeps a profile of your own, which other commands take as --drive backup-1",
        )],
    ),
    (
        "manylogs-drive-identify",
        &[(
            "manylogs drive identify /dev/sdb",
            "says which drive it is, and what is guessed of it",
        )],
    ),
    (
        "manylogs-drive-vary",
        &[(
            "manylogs drive vary --like backup-1 --seed 7 > drawn.toml",
            "writes a drive that backup-1 may be",
        )],
    ),
    (
        "manylogs-drive-compare",
        &[("manylogs drive compare backup-1 exos-x20", "shows in what two drives differ")],
    ),
    (
        "manylogs-drive-show",
        &[(
            "manylogs drive show exos-x20 > mine.toml",
            "writes a profile, to be changed and given as --drive mine.toml",
        )],
    ),
    (
        "manylogs-replay",
        &[(
            "manylogs replay server.trace --drive exos-x20 --policy nologging,mlb,mlb:group=100M \
             --report r.html",
            "compares three policies, and draws the report",
        )],
    ),
    (
        "manylogs-advise",
        &[(
            "manylogs advise server.trace --drive exos-x20 --rate auto --fit --json r.json",
            "judges a load that keeps the plain drive half busy",
        )],
    ),
    (
        "manylogs-sweep",
        &[("manylogs sweep grid.toml", "replays a grid of runs; call it again after Ctrl-C")],
    ),
    (
        "manylogs-fleet",
        &[
            (
                "manylogs fleet disks.csv --out fleet --plan",
                "says how long judging these disks takes, by number of workers",
            ),
            ("manylogs fleet disks.csv --out fleet", "judges them; call it again after Ctrl-C"),
        ],
    ),
    (
        "manylogs-chain",
        &[(
            "manylogs chain --drive exos-x20 --gates fresh,readers,steady --json chain.json",
            "measures a chain of three drives against its gates",
        )],
    ),
    (
        "manylogs-interfere",
        &[(
            "manylogs interfere --drive exos-x20 --policy nologging,mlb --stream read \
             --stream-depth 1,8,32 --syncs 16",
            "measures syncs beside a reader at three depths",
        )],
    ),
    (
        "manylogs-format",
        &[
            ("manylogs format /dev/sdb --label backup", "makes a volume on a disk"),
            ("manylogs format disk.img --size 20G", "makes one in an image file"),
            (
                "manylogs format --gecko /dev/sdb /dev/sdc /dev/sdd",
                "makes a chain of three drives that writes like one quiet drive",
            ),
        ],
    ),
    (
        "manylogs-check",
        &[
            ("manylogs check /dev/sdb", "reports damage and changes nothing"),
            ("manylogs check /dev/sdb --repair", "mends what has a second copy"),
        ],
    ),
    (
        "manylogs-serve",
        &[
            ("manylogs serve /dev/sdb --loop", "serves a block device, and prints its name"),
            ("manylogs serve /dev/sdb --nbd unix:/run/m.sock", "serves clients of NBD"),
            (
                "manylogs serve disk.img --loop --emulate exos-x20",
                "serves an image as slow as that drive",
            ),
        ],
    ),
    (
        "manylogs-lend",
        &[
            ("manylogs lend /srv/lent.img --size 20G", "lends a file, and prints its address"),
            (
                "manylogs lend /dev/sdc3 --listen unix:/run/sdc3.store",
                "lends a partition at an address of your choice",
            ),
        ],
    ),
    (
        "manylogs-stores",
        &[("manylogs stores /dev/sdb", "shows what stores hold of a base volume, and where")],
    ),
    (
        "manylogs-episodes",
        &[("manylogs episodes --seed 1,2,3", "measures the first episode, with three seeds")],
    ),
    ("manylogs-stop", &[("manylogs stop /dev/sdb", "ends the server when nobody uses its device")]),
    ("manylogs-top", &[("manylogs top /dev/sdb", "shows rates and latencies each second")]),
    ("manylogs-list", &[("manylogs list", "lists volumes and their servers")]),
    ("manylogs-status", &[("manylogs status /dev/sdb --json", "prints the state of a volume")]),
    (
        "manylogs-set",
        &[
            ("manylogs set /dev/sdb", "prints all settings"),
            ("manylogs set /dev/sdb latency=20ms", "changes one for good"),
        ],
    ),
    ("manylogs-checkpoint", &[("manylogs checkpoint /dev/sdb", "writes logged data home")]),
    (
        "manylogs-drain",
        &[("manylogs drain /dev/sdb --wipe", "empties the logs and overwrites them")],
    ),
    (
        "manylogs-table",
        &[(
            "manylogs table --dm /dev/sdb | dmsetup create plain",
            "reads a drained disk through the device mapper",
        )],
    ),
    ("manylogs-scrub", &[("manylogs scrub /dev/sdb", "reads and checks every logged copy")]),
    ("manylogs-grow", &[("manylogs grow disk.img", "uses all of an image that became larger")]),
    (
        "manylogs-fs-mount",
        &[("manylogs fs mount disk.img /mnt", "mounts an ext4 file system in the foreground")],
    ),
    ("manylogs-fs-status", &[("manylogs fs status /mnt", "tells what syncs cost so far")]),
    ("manylogs-fs-top", &[("manylogs fs top /mnt", "shows rates and latencies until q")]),
    ("manylogs-fs-arrange", &[("manylogs fs arrange /mnt", "arranges metadata for walks")]),
    ("manylogs-fs-scrub", &[("manylogs fs scrub /mnt", "reads what the journal keeps")]),
    (
        "manylogs-fs-journal",
        &[("manylogs fs journal /dev/sdb1 --size 10G", "gives ext4 a journal of 10 GiB")],
    ),
    ("manylogs-fs-checkpoint", &[("manylogs fs checkpoint /mnt", "writes logged data home")]),
    (
        "manylogs-fs-set",
        &[
            ("manylogs fs set /mnt", "prints all settings of the logs"),
            ("manylogs fs set /mnt latency=20ms", "changes one for good"),
        ],
    ),
    (
        "manylogs-torture",
        &[("manylogs torture --seeds 1..100", "crashes a hundred simulated volumes")],
    ),
];

/// The examples of a page; empty if it has none.
pub(super) fn of(page: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(name, _)| *name == page).map_or(&[], |(_, examples)| examples)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    /// The words of a simple command line, split as a shell would.
    fn words(line: &str) -> Vec<&str> {
        let line = line.split(['|', '>']).next().unwrap_or(line);
        line.split_whitespace().collect()
    }

    #[test]
    fn every_example_is_a_valid_command_line() {
        for (page, examples) in EXAMPLES {
            for (line, _) in *examples {
                let parsed = Cli::command().try_get_matches_from(words(line));
                assert!(parsed.is_ok(), "{page}: {line}: {}", parsed.unwrap_err());
            }
        }
    }
}
