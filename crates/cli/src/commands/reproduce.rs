//! `manylogs reproduce`: measures the papers' figures, and compares them with the papers.

mod room;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use manylogs_lab::parallel::on_threads;
use manylogs_lab::replay::Progress;
use manylogs_lab::reproduce::{
    Chosen, Context, Folder, JudgedFigure, Metrics, Paper, Planned, Report, Run, RunError, Scale,
    chosen, figure_text, judge, listing, markdown, page, papers, plan, raw, use_folder,
};
use manylogs_lab::runs::{Kept, RunKey};
use manylogs_lab::sweep::JobError;

use super::command_line;
use super::kept::{self, kept_failure};
use super::load::stop_on_ctrl_c;
use super::sweep::incomplete;
use crate::args::reproduce::ReproduceArgs;
use crate::failure::Failure;
use crate::output::{Output, print};
use crate::progress::Bars;

/// The file with the results of finished runs, in the folder of results.
const ROWS: &str = "runs.jsonl";

pub(crate) fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    if let Some(dir) = &args.figures {
        use_folder(dir).map_err(Failure::input)?;
    }
    let wanted = chosen(args.paper.as_deref(), &args.only).map_err(Failure::input)?;
    if args.list {
        return print(&listing(&wanted));
    }
    let scale = Scale::new(args.scale).unwrap_or(Scale::FULL);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::fs::create_dir_all(&args.out).map_err(|error| Failure::at(&args.out, &error))?;
    let asked = args.threads.map(manylogs_block::to_usize);
    let threads = room::threads(&wanted, scale, asked, cores)?;
    room::check_disk(&args.out)?;
    let outputs = Outputs::reserve(args)?;
    let folder = folder(args.traces.as_deref())?;
    let plans = plans(&wanted, scale, &folder)?;
    let rows = args.out.join(ROWS);
    let work = Work {
        context: Context::default(),
        runs: Arc::default(),
        done: Mutex::new(kept::told(&rows, Kept::open(&rows))?),
        failed: Mutex::default(),
        failure: Mutex::default(),
    };
    stop_on_ctrl_c(vec![Arc::clone(&work.context.progress)])?;
    let began = Instant::now();
    work.all(&plans, threads);
    if let Some(failure) = locked(&work.failure).take() {
        return Err(failure);
    }
    // Not written: results of an earlier command are complete, and these would not be.
    if work.context.progress.stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    let done = |key: RunKey| locked(&work.done).get(key).cloned();
    let mut judged: Vec<JudgedFigure> =
        plans.iter().map(|planned| judge(planned, scale, &done)).collect();
    let figures: Vec<Vec<JudgedFigure>> =
        wanted.iter().map(|one| judged.drain(..one.figures.len()).collect::<Vec<_>>()).collect();
    let all: Vec<(&Paper, Vec<JudgedFigure>)> =
        wanted.iter().map(|one| &one.paper).zip(figures).collect();
    outputs.write(&all, scale, &plans, &done)?;
    print(&told(&all, &work, scale, &outputs, began))?;
    end(&all, &plans, &work)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn folder(path: Option<&Path>) -> Result<Folder, Failure> {
    let Some(path) = path else { return Ok(Folder::default()) };
    let folder = Folder::open(path).map_err(|error| Failure::at(path, &error))?;
    folder.notes.iter().for_each(|note| eprintln!("note: {note}"));
    Ok(folder)
}

fn plans(wanted: &[Chosen], scale: Scale, folder: &Folder) -> Result<Vec<Planned>, Failure> {
    let mut plans = Vec::new();
    for one in wanted {
        let whole = papers().iter().find(|paper| paper.paper.name == one.paper.name);
        let others = whole.map_or(&[][..], |paper| &paper.figures);
        for figure in &one.figures {
            plans.push(plan(figure, others, scale, folder).map_err(Failure::input)?);
        }
    }
    Ok(plans)
}

/// An argument without this machine's folders: a path is shortened to the file's name.
fn published(arg: &str) -> String {
    let (option, value) = match arg.split_once('=') {
        Some((option, value)) if option.starts_with("--") => (format!("{option}="), value),
        _ => (String::new(), arg),
    };
    let name = Path::new(value).file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.filter(|_| value.contains('/')).unwrap_or_else(|| value.to_owned());
    option + &name
}

/// Runs under way.
struct Work {
    context: Context,
    /// Progress of the runs.
    runs: Arc<Progress>,
    done: Mutex<Kept<Metrics>>,
    /// Runs without a result, by name.
    failed: Mutex<BTreeMap<String, RunError>>,
    /// The first failure to store a result, which ends all runs.
    failure: Mutex<Option<Failure>>,
}

impl Work {
    /// Does each run once, although several figures may need it.
    fn all(&self, plans: &[Planned], threads: usize) {
        let mut left: Vec<&Run> = Vec::new();
        for run in plans.iter().flat_map(|planned| &planned.runs) {
            let is_known = left.iter().any(|other| other.key == run.key);
            if !is_known && locked(&self.done).get(run.key).is_none() {
                left.push(run);
            }
        }
        let shown = Bars::show(&["runs".to_owned()], &[Arc::clone(&self.runs)], left.len() as u64);
        on_threads(left.len(), threads, |index| self.one(left[index]));
        drop(shown);
    }

    fn one(&self, run: &Run) {
        if self.context.progress.stop.load(Ordering::Relaxed) {
            return;
        }
        let metrics = match run.measure(&self.context) {
            Ok(Some(metrics)) => metrics,
            Ok(None) => return,
            Err(error) => {
                locked(&self.failed).insert(run.name.clone(), error);
                return;
            }
        };
        if let Err(error) = locked(&self.done).keep(run.key, metrics) {
            locked(&self.failure).get_or_insert(kept_failure(&error));
            self.context.progress.stop.store(true, Ordering::Relaxed);
        }
        self.runs.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// The files to write.
struct Outputs {
    html: Output,
    json: Output,
    rows: Output,
    markdown: Option<Output>,
    command: String,
}

impl Outputs {
    fn reserve(args: &ReproduceArgs) -> Result<Self, Failure> {
        let or = |given: &Option<std::path::PathBuf>, name: &str| {
            Output::reserve(&given.clone().unwrap_or_else(|| args.out.join(name)))
        };
        Ok(Self {
            html: or(&args.html, "figures.html")?,
            json: or(&args.json, "claims.json")?,
            rows: Output::reserve(&args.out.join("runs.parquet"))?,
            markdown: args.markdown.as_deref().map(Output::reserve).transpose()?,
            command: command_line(std::env::args().map(|arg| published(&arg))),
        })
    }

    fn write(
        &self,
        all: &[(&Paper, Vec<JudgedFigure>)],
        scale: Scale,
        plans: &[Planned],
        done: &dyn Fn(RunKey) -> Option<Metrics>,
    ) -> Result<(), Failure> {
        self.html.write(page(all, scale, &self.command).as_bytes())?;
        let json = Report::of(all, scale).to_json().map_err(Failure::failed)?;
        self.json.write(json.as_bytes())?;
        let mut bytes = Vec::new();
        raw(plans, done).parquet(&mut bytes).map_err(Failure::failed)?;
        self.rows.write(&bytes)?;
        if let Some(output) = &self.markdown {
            let documents: Vec<String> = all
                .iter()
                .map(|(paper, figures)| {
                    let command = format!(
                        "manylogs reproduce {} --scale {} --markdown FILE",
                        paper.name,
                        scale.number()
                    );
                    markdown(paper, figures, scale, &command)
                })
                .collect();
            output.write(documents.join("\n").as_bytes())?;
        }
        Ok(())
    }
}

fn told(
    all: &[(&Paper, Vec<JudgedFigure>)],
    work: &Work,
    scale: Scale,
    outputs: &Outputs,
    began: Instant,
) -> String {
    let mut out: String = all.iter().flat_map(|(_, of)| of).map(figure_text).collect();
    for (name, error) in &*locked(&work.failed) {
        out += &format!("failed: {name}: {error}\n");
    }
    let report = Report::of(all, scale);
    out += &format!(
        "claims at scale {} of 10: {} held, {} failed, {} not testable here\n",
        report.scale, report.held, report.failed, report.not_testable
    );
    for (what, output) in
        [("plots", &outputs.html), ("claims", &outputs.json), ("rows", &outputs.rows)]
    {
        out += &format!("{what}: {}\n", output.path().display());
    }
    out + &format!(
        "computing took: {} runs in {:.1} s\n",
        work.runs.done.load(Ordering::Relaxed),
        began.elapsed().as_secs_f64()
    )
}

fn end(all: &[(&Paper, Vec<JudgedFigure>)], plans: &[Planned], work: &Work) -> Result<(), Failure> {
    let verdicts = all.iter().flat_map(|(_, figures)| figures);
    let broken: Vec<String> = verdicts
        .flat_map(|judged| judged.verdicts.iter().map(move |it| (&judged.figure.name, it)))
        .filter(|(_, verdict)| verdict.is_broken())
        .map(|(name, verdict)| format!("{name}: {} ({})", verdict.claim, verdict.because))
        .collect();
    if !broken.is_empty() {
        return Err(Failure::Failed(format!(
            "claims that should hold fail: {}",
            broken.join("; ")
        )));
    }
    let failed = locked(&work.failed);
    let of_runs = failed.values().map(|error| match error {
        RunError::Replay(error) => Some(error),
        _ => None,
    });
    let mut left_out: Vec<&JobError> = Vec::new();
    for error in plans.iter().flat_map(|planned| &planned.left_out) {
        if !left_out.contains(&error) {
            left_out.push(error);
        }
    }
    let reasons: Vec<String> = left_out.iter().map(|error| format!("not run: {error}")).collect();
    let errors: Vec<Option<&JobError>> = of_runs.chain(left_out.into_iter().map(Some)).collect();
    if errors.is_empty() {
        return Ok(());
    }
    let gave = format!("{} runs gave nothing, see above", failed.len());
    let gave = (!failed.is_empty()).then_some(gave);
    let message: Vec<String> = gave.into_iter().chain(reasons).collect();
    Err(incomplete(&errors, format!("the figures are not complete: {}", message.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_has_no_folders_of_this_machine() {
        for (arg, said) in [
            ("--traces=/home/me/snia", "--traces=snia"),
            ("/home/me/out/", "out"),
            ("--scale", "--scale"),
            ("fig2a,fig7b", "fig2a,fig7b"),
        ] {
            assert_eq!(published(arg), said);
        }
    }

    #[test]
    fn each_figure_can_be_planned_at_each_scale() {
        for number in [1, 5, 10] {
            let scale = Scale::new(number).unwrap();
            let plans = plans(papers(), scale, &Folder::default()).unwrap();
            for planned in plans {
                assert!(planned.left_out.is_empty(), "{:?}", planned.left_out);
                let runs = planned.runs.len();
                assert_eq!(runs == 0, planned.figure.not_testable.is_some());
            }
        }
    }
}
