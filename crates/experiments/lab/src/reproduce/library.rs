//! The figures that there are.

use std::fs::read_to_string;
use std::path::Path;
use std::sync::OnceLock;

use super::file::{Figure, Paper};

/// A paper with its figures, in the paper's order.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The paper.
    pub paper: Paper,
    /// Figures: all, or those that were asked for.
    pub figures: Vec<Figure>,
}

macro_rules! figures {
    ($paper:literal: $($name:literal),+ $(,)?) => {
        (
            $paper,
            include_str!(concat!("../../../../../figures/", $paper, "/paper.toml")),
            &[$((
                $name,
                include_str!(concat!("../../../../../figures/", $paper, "/", $name, ".toml")),
            )),+],
        )
    };
}

/// Name of a paper, its file, and those of its figures by name.
type Files = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const PAPERS: &[Files] = &[
    figures!("manylogs":
        "intro", "fig2a", "fig2b", "fig3a", "fig3b", "fig4a", "fig4b", "fig5", "fig6a", "fig6b",
        "fig6c", "table2", "fig7a", "fig7b", "fig8", "section6", "section3e", "slides", "default"
    ),
    figures!("everest":
        "table1", "table2", "fig5", "fig6", "fig7", "fig8", "table3", "fig9", "fig10", "fig11",
        "fig12", "fig13a", "fig13b", "fig13c", "default-policy", "on-volumes", "share"
    ),
    figures!("lazy":
        "fig1", "fig3", "section31", "fig6", "fig7", "writes", "fig9", "fig11", "gates", "cleaner",
        "mounts", "fig12", "postmark", "fig14"
    ),
    figures!("gecko":
        "fig2", "fig4", "fig5", "table1", "fig6", "fig7", "fig8", "fig9", "section4", "fig10"
    ),
];

static PARSED: OnceLock<Vec<Chosen>> = OnceLock::new();

/// Takes the figures of a folder instead of those that the program has: a folder for each paper,
/// with a file `paper.toml` and one for each figure. Call it before any other.
///
/// # Errors
/// If a file cannot be read, or makes no sense; the message names it.
pub fn use_folder(dir: &Path) -> Result<(), String> {
    let text = |path: &Path| {
        read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let list = |dir: &Path| -> Result<Vec<std::path::PathBuf>, String> {
        let failed = |error| format!("cannot read {}: {error}", dir.display());
        let entries = dir.read_dir().map_err(failed)?;
        let mut paths = entries
            .map(|entry| entry.map(|entry| entry.path()).map_err(failed))
            .collect::<Result<Vec<_>, String>>()?;
        paths.sort();
        Ok(paths)
    };
    let mut found = Vec::new();
    for dir in list(dir)?.into_iter().filter(|path| path.is_dir()) {
        let file = dir.join("paper.toml");
        let paper = toml::from_str::<Paper>(&text(&file)?);
        let paper = paper.map_err(|error| format!("{}: {error}", file.display()))?;
        let mut figures = Vec::new();
        for path in list(&dir)? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_figure = path.extension().is_some_and(|it| it == "toml");
            if is_figure && name != "paper" && name != "tenants" {
                let figure = Figure::parse(&text(&path)?);
                let figure = figure.map_err(|error| format!("{}: {error}", path.display()))?;
                figures.push(Figure { file: Some(path), ..figure });
            }
        }
        figures.sort_by_key(|figure| place(&paper, &figure.name));
        found.push(Chosen { paper, figures });
    }
    PARSED.set(found).map_err(|_| "the figures were in use before".to_owned())
}

/// Where a figure has its place among those that the program has of a paper; behind them, if it is
/// new.
fn place(paper: &Paper, name: &str) -> usize {
    let known = PAPERS.iter().find(|(known, ..)| *known == paper.name);
    let known = known.map_or(&[][..], |(.., figures)| *figures);
    known.iter().position(|(known, _)| *known == name).unwrap_or(usize::MAX)
}

/// All papers with all figures.
#[must_use]
pub fn papers() -> &'static [Chosen] {
    PARSED.get_or_init(|| {
        let read = |(_, paper, figures): &Files| Chosen {
            paper: toml::from_str(paper)
                .unwrap_or_else(|error| unreachable!("a paper's file: {error}")),
            figures: figures
                .iter()
                .map(|(name, text)| {
                    Figure::parse(text).unwrap_or_else(|error| unreachable!("{name}: {error}"))
                })
                .collect(),
        };
        PAPERS.iter().map(read).collect()
    })
}

/// The figures of this paper that `only` names; all, if it names none. All papers, if none is
/// named.
///
/// # Errors
/// If a paper or a figure is not known: the message lists what there is.
pub fn chosen(paper: Option<&str>, only: &[String]) -> Result<Vec<Chosen>, String> {
    let all = papers();
    let of_name = |one: &&Chosen| paper.is_none_or(|name| one.paper.name == name);
    let mut found: Vec<Chosen> = all.iter().filter(of_name).cloned().collect();
    if found.is_empty() {
        let names: Vec<&str> = all.iter().map(|one| one.paper.name.as_str()).collect();
        let paper = paper.unwrap_or_default();
        return Err(format!("unknown paper `{paper}`; there are: {}", names.join(", ")));
    }
    let known: Vec<&str> =
        found.iter().flat_map(|one| one.figures.iter().map(|it| it.name.as_str())).collect();
    if let Some(other) = only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("unknown figure `{other}`; there are: {}", known.join(", ")));
    }
    if !only.is_empty() {
        for one in &mut found {
            one.figures.retain(|figure| only.contains(&figure.name));
        }
        found.retain(|one| !one.figures.is_empty());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_in_the_library_under_its_name() {
        for (paper, (name, _, files)) in papers().iter().zip(PAPERS) {
            assert_eq!(paper.paper.name, *name);
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../figures");
            let entries = std::fs::read_dir(dir.join(&paper.paper.name)).unwrap();
            let mut there: Vec<String> = entries
                .map(|entry| entry.unwrap().path().file_stem().unwrap().display().to_string())
                .filter(|name| name != "paper" && name != "tenants")
                .collect();
            let mut known: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
            there.sort();
            known.sort_unstable();
            assert_eq!(there, known);
            for (figure, (name, _)) in paper.figures.iter().zip(*files) {
                assert_eq!(figure.name, *name);
                let of = |name: &String| paper.figures.iter().any(|it| it.name == *name);
                assert!(figure.parts_of.iter().all(of), "{name}");
            }
        }
    }

    #[test]
    fn what_is_not_known_lists_what_there_is() {
        let error = chosen(Some("manylogs"), &["fig9".to_owned()]).unwrap_err();
        assert!(error.contains("unknown figure `fig9`") && error.contains("fig6a"), "{error}");
        assert!(chosen(Some("linux"), &[]).unwrap_err().contains("manylogs"));
        let two = chosen(None, &["fig2a".to_owned(), "fig8".to_owned()]).unwrap();
        assert_eq!(two[0].figures.len(), 2);
    }
}
