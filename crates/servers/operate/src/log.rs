//! Log lines on standard error: text for people, or logfmt or JSON for programs. The message is
//! complete; fields repeat parts of it for programs that filter and count.

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::{Map, Value};

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `manylogs: DEVICE: MESSAGE`
    #[default]
    Text,
    /// `level=info msg="..." key=value`
    Logfmt,
    /// One JSON object a line.
    Json,
}

/// Severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Expected events.
    Info,
    /// Somebody should look at it.
    Warning,
    /// Something failed.
    Error,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A key and value beside the message.
pub type Field<'a> = (&'a str, Value);

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Sets the format of this process's lines; only the first call has effect.
pub fn set_format(format: LogFormat) {
    let _ = FORMAT.set(format);
}

/// Writes a line, about `device` if one is given.
pub fn line(level: Level, device: Option<&Path>, message: &str, fields: &[Field<'_>]) {
    let format = FORMAT.get().copied().unwrap_or_default();
    let text = formatted(format, level, device, message, fields) + "\n";
    // Written in one call, because other processes write there too. Errors are ignored: if the
    // output has no reader nobody misses the line.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn formatted(
    format: LogFormat,
    level: Level,
    device: Option<&Path>,
    message: &str,
    fields: &[Field<'_>],
) -> String {
    let device = device.map(|device| device.display().to_string());
    if format == LogFormat::Text {
        return match device {
            Some(device) => format!("manylogs: {device}: {message}"),
            None => format!("manylogs: {message}"),
        };
    }
    let mut all = Map::new();
    all.insert("level".to_owned(), level.name().into());
    all.insert("msg".to_owned(), message.into());
    all.extend(device.map(|device| ("device".to_owned(), Value::from(device))));
    all.extend(fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    if format == LogFormat::Json {
        return Value::from(all).to_string();
    }
    let pair = |(key, value): (&String, &Value)| format!("{key}={}", logfmt(value));
    all.iter().map(pair).collect::<Vec<_>>().join(" ")
}

/// A value in logfmt: plain words without quotes, all other text quoted as in JSON.
fn logfmt(value: &Value) -> String {
    let plain = |c: char| c.is_ascii_graphic() && !"\"=\\".contains(c);
    match value {
        Value::String(text) if !text.is_empty() && text.chars().all(plain) => text.clone(),
        Value::Array(_) | Value::Object(_) => Value::from(value.to_string()).to_string(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_every_format() {
        let device = Some(Path::new("/dev/my disk"));
        let fields = [("extents", Value::from(3)), ("why", "a \"b\"\n".into())];
        let said =
            |format| formatted(format, Level::Warning, device, "3 are lost, a=b", &fields[..]);
        assert_eq!(said(LogFormat::Text), "manylogs: /dev/my disk: 3 are lost, a=b");
        assert_eq!(
            said(LogFormat::Logfmt),
            "level=warning msg=\"3 are lost, a=b\" device=\"/dev/my disk\" extents=3 \
             why=\"a \\\"b\\\"\\n\""
        );
        let json: Value = serde_json::from_str(&said(LogFormat::Json)).unwrap_or_default();
        assert_eq!(json["why"], "a \"b\"\n");
        assert_eq!((json["level"].as_str(), json["extents"].as_u64()), (Some("warning"), Some(3)));
        assert_eq!(formatted(LogFormat::Text, Level::Info, None, "hello", &[]), "manylogs: hello");
    }
}
