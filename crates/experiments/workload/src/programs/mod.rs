//! Programs as small models: the file operations of each of their threads, one after another.
//!
//! A model knows nothing of disks. It asks [`Files`], which a file system in virtual time
//! implements, and reports each operation that the papers measure. Content does not matter here,
//! only lengths. The programs are those of the Manylogs paper, Fig. 4 and 5, with the parameters of
//! Filebench's files and of section V-A.4.

mod fileserver;
mod mongodb;
mod pace;
mod pool;
mod postmark;
mod sources;
mod varmail;

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use manylogs_block::{Handle, Nanos, Rng};

pub use fileserver::FileServer;
pub use mongodb::MongoDb;
pub use postmark::{Postmark, PostmarkFile, PostmarkRun, PostmarkStep};
pub use sources::{
    CompileBench, CompileBenchRun, SourceDirectory, SourceFile, SourceKind, SourceStep, SourceTree,
};
pub use varmail::VarMail;

/// A file of an instance of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// An operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An operation of the program that makes data durable.
    Flush,
    /// An operation that a user of the program waits for.
    Request,
    /// Any other operation.
    Other,
}

/// The files of one instance, as a program uses them.
pub trait Files: 'static {
    /// Why an operation failed.
    type Error: 'static;

    /// Makes an empty file.
    fn create(&self, file: FileId) -> impl Future<Output = Result<(), Self::Error>>;

    /// Removes a file.
    fn delete(&self, file: FileId) -> impl Future<Output = Result<(), Self::Error>>;

    /// Writes `bytes` from `offset` on.
    fn write(
        &self,
        file: FileId,
        offset: u64,
        bytes: u64,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// Reads a file of this length.
    fn read(&self, file: FileId, bytes: u64) -> impl Future<Output = Result<(), Self::Error>>;

    /// Makes the content of a file durable, and what is needed to find it.
    fn sync(&self, file: FileId) -> impl Future<Output = Result<(), Self::Error>>;

    /// Asks for the attributes of a file.
    fn stat(&self, file: FileId) -> impl Future<Output = Result<(), Self::Error>>;

    /// Reports that an operation took `took`.
    fn done(&self, operation: Operation, took: Nanos);

    /// Whether programs are to go on.
    fn goes_on(&self) -> bool;

    /// Reports that a thread of a program ended; `result` has the error if it failed.
    fn ended(&self, result: Result<(), Self::Error>);
}

/// A program with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Program {
    /// A mail server.
    VarMail(VarMail),
    /// A file server.
    FileServer(FileServer),
    /// A database whose clients wait until what they write is durable.
    MongoDb(MongoDb),
}

/// A file that exists before a program begins, and its length.
pub type Initial = (FileId, u64);

impl Program {
    /// Names on the command line.
    pub const NAMES: [&'static str; 3] = ["varmail", "fileserver", "mongodb"];

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::VarMail(_) => Self::NAMES[0],
            Self::FileServer(_) => Self::NAMES[1],
            Self::MongoDb(_) => Self::NAMES[2],
        }
    }

    /// The files that each instance begins with.
    #[must_use]
    pub fn initial(&self, rng: &mut Rng) -> Vec<Initial> {
        match self {
            Self::VarMail(program) => program.initial(rng),
            Self::FileServer(program) => program.initial(rng),
            Self::MongoDb(program) => program.initial(),
        }
    }

    /// Whether a file is a log: written to be durable, and read only after a crash.
    #[must_use]
    pub const fn is_log(&self, _file: FileId) -> bool {
        matches!(self, Self::MongoDb(_))
    }

    /// Starts the threads of one instance, which begins with the files `initial`. Returns their
    /// number; each calls [`Files::ended`] at its end.
    pub fn start<F: Files>(
        &self,
        runtime: &Handle,
        files: &Rc<F>,
        initial: &[Initial],
        rng: &mut Rng,
    ) -> usize {
        match *self {
            Self::VarMail(program) => program.start(runtime, files, initial, rng),
            Self::FileServer(program) => program.start(runtime, files, initial, rng),
            Self::MongoDb(program) => program.start(runtime, files, rng),
        }
    }
}

/// Parses a name; the program has the parameters of the paper.
impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "varmail" => Ok(Self::VarMail(VarMail::default())),
            "fileserver" => Ok(Self::FileServer(FileServer::default())),
            "mongodb" => Ok(Self::MongoDb(MongoDb::default())),
            _ => Err(format!("expected one of: {}", Self::NAMES.join(", "))),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Runs one thread of a program until it ends or fails.
fn spawn<F: Files>(
    runtime: &Handle,
    files: &Rc<F>,
    thread: impl Future<Output = Result<(), F::Error>> + 'static,
) {
    let files = Rc::clone(files);
    runtime.spawn(async move { files.ended(thread.await) });
}
