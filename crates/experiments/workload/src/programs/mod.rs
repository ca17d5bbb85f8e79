//! Programs as small models: the file operations of each of their threads, one after another.
//!
//! A model knows nothing of disks. It asks [`Files`], which a file system in virtual time
//! implements, and reports each operation that the papers measure. Content does not matter here,
//! only lengths. `varmail`, `fileserver` and `mongodb` are those of the Manylogs paper, Fig. 4 and
//! 5, with the parameters of Filebench's files and of section V-A.4. The others are not in the
//! paper: how their logs are written, synced and ended was seen in system calls of the programs, or
//! is what their documents say is the default.

mod commits;
mod etcd;
mod fileserver;
mod innodb;
mod kafka;
mod mongodb;
mod pace;
mod pages;
mod pool;
mod postgres;
mod postmark;
mod small_files;
mod sources;
mod sqlite;
#[cfg(test)]
mod tests;
mod varmail;

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use manylogs_block::{Handle, Nanos, Rng};

pub use etcd::Etcd;
pub use fileserver::FileServer;
pub use innodb::Innodb;
pub use kafka::Kafka;
pub use mongodb::MongoDb;
pub use pace::Pace;
pub use postgres::Postgres;
pub use postmark::{Postmark, PostmarkFile, PostmarkRun, PostmarkStep};
pub use small_files::SmallFiles;
pub use sources::{
    CompileBench, CompileBenchRun, SourceDirectory, SourceFile, SourceKind, SourceStep, SourceTree,
};
pub use sqlite::Sqlite;
pub use varmail::VarMail;

/// A file of an instance of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// The data file of a database, which is no log.
const DATA: FileId = FileId(0);

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

    /// Fills an empty file with so many zeroes.
    fn write_zeroes(
        &self,
        file: FileId,
        bytes: u64,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// Takes blocks for a file of this length, which stays as long as it is (`fallocate` with
    /// `FALLOC_FL_KEEP_SIZE`).
    fn reserve(&self, file: FileId, bytes: u64) -> impl Future<Output = Result<(), Self::Error>>;

    /// Gives a file a name that no file has.
    fn rename(&self, from: FileId, to: FileId) -> impl Future<Output = Result<(), Self::Error>>;

    /// Reads a file of this length.
    fn read(&self, file: FileId, bytes: u64) -> impl Future<Output = Result<(), Self::Error>>;

    /// Makes the content of a file durable, and what is needed to find it.
    fn sync(&self, file: FileId) -> impl Future<Output = Result<(), Self::Error>>;

    /// Asks for the attributes of a file.
    fn stat(&self, file: FileId) -> impl Future<Output = Result<(), Self::Error>>;

    /// Resolves when the next measured operation may begin: one that makes data durable, or, of a
    /// program that syncs nothing, a request. At once, unless so many a second are allowed.
    fn admitted(&self) -> impl Future<Output = ()>;

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
    /// Postmark at a rate.
    Postmark(SmallFiles),
    /// A database whose log is in segments that are renamed and overwritten.
    Postgres(Postgres),
    /// A database with one writer, whose log is overwritten from its beginning.
    Sqlite(Sqlite),
    /// A database whose log is in files that are deleted.
    Etcd(Etcd),
    /// A database whose log is a ring.
    Innodb(Innodb),
    /// A message broker, whose log is its data.
    Kafka(Kafka),
}

/// A file that exists before a program begins, and its length.
pub type Initial = (FileId, u64);

impl Program {
    /// Names on the command line.
    pub const NAMES: [&'static str; 9] = [
        "varmail",
        "fileserver",
        "mongodb",
        "postmark",
        "postgres",
        "sqlite",
        "etcd",
        "innodb",
        "kafka",
    ];

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::VarMail(_) => Self::NAMES[0],
            Self::FileServer(_) => Self::NAMES[1],
            Self::MongoDb(_) => Self::NAMES[2],
            Self::Postmark(_) => Self::NAMES[3],
            Self::Postgres(_) => Self::NAMES[4],
            Self::Sqlite(_) => Self::NAMES[5],
            Self::Etcd(_) => Self::NAMES[6],
            Self::Innodb(_) => Self::NAMES[7],
            Self::Kafka(_) => Self::NAMES[8],
        }
    }

    /// The same program with so many clients, if it is a database with clients.
    #[must_use]
    pub const fn with_clients(self, clients: u32) -> Self {
        match self {
            Self::MongoDb(program) => Self::MongoDb(MongoDb { clients, ..program }),
            Self::Postgres(program) => Self::Postgres(Postgres { clients, ..program }),
            Self::Etcd(program) => Self::Etcd(Etcd { clients, ..program }),
            Self::Innodb(program) => Self::Innodb(Innodb { clients, ..program }),
            Self::VarMail(_)
            | Self::FileServer(_)
            | Self::Postmark(_)
            | Self::Sqlite(_)
            | Self::Kafka(_) => self,
        }
    }

    /// Time from one flush of its log to the next, of a program that has such a period.
    #[must_use]
    pub const fn flush_every(&self) -> Option<Nanos> {
        match self {
            Self::MongoDb(database) => Some(database.flush),
            _ => None,
        }
    }

    /// The files that each instance begins with.
    #[must_use]
    pub fn initial(&self, rng: &mut Rng) -> Vec<Initial> {
        match self {
            Self::VarMail(program) => program.initial(rng),
            Self::FileServer(program) => program.initial(rng),
            Self::MongoDb(program) => program.initial(),
            Self::Postmark(program) => program.initial(rng),
            Self::Postgres(program) => program.initial(),
            Self::Sqlite(program) => program.initial(),
            Self::Etcd(program) => program.initial(),
            Self::Innodb(program) => program.initial(),
            Self::Kafka(program) => program.initial(),
        }
    }

    /// Whether a file is a log: written to be durable, and read only after a crash. Kafka's files
    /// are read, and mail is, so none of these are.
    #[must_use]
    pub fn is_log(&self, file: FileId) -> bool {
        match self {
            Self::MongoDb(_) => true,
            Self::Postgres(_) | Self::Sqlite(_) | Self::Etcd(_) | Self::Innodb(_) => file != DATA,
            Self::VarMail(_) | Self::FileServer(_) | Self::Postmark(_) | Self::Kafka(_) => false,
        }
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
            Self::Postmark(program) => program.start(runtime, files, initial, rng),
            Self::Postgres(program) => program.start(runtime, files, rng),
            Self::Sqlite(program) => program.start(runtime, files, rng),
            Self::Etcd(program) => program.start(runtime, files, rng),
            Self::Innodb(program) => program.start(runtime, files, rng),
            Self::Kafka(program) => program.start(runtime, files, rng),
        }
    }
}

/// Parses a name; the program has the parameters of the paper, or of its own settings.
impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "varmail" => Ok(Self::VarMail(VarMail::default())),
            "fileserver" => Ok(Self::FileServer(FileServer::default())),
            "mongodb" => Ok(Self::MongoDb(MongoDb::default())),
            "postmark" => Ok(Self::Postmark(SmallFiles::default())),
            "postgres" => Ok(Self::Postgres(Postgres::default())),
            "sqlite" => Ok(Self::Sqlite(Sqlite::default())),
            "etcd" => Ok(Self::Etcd(Etcd::default())),
            "innodb" => Ok(Self::Innodb(Innodb::default())),
            "kafka" => Ok(Self::Kafka(Kafka::default())),
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
