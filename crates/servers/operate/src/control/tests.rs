//! What goes over the socket.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;

#[test]
fn answers_pass_the_socket_as_they_are() {
    let answers: [(Answer, &str); 5] = [
        (Ok(Value::Null), r#"{"ok":null}"#),
        (Ok(7.into()), r#"{"ok":7}"#),
        (Err(OrderError::new("no")), r#"{"error":"no"}"#),
        (Err(OrderError::in_use("no")), r#"{"error":"no","kind":"in-use"}"#),
        (Err(OrderError::bad_input("no")), r#"{"error":"no","kind":"bad-input"}"#),
    ];
    for (answer, text) in answers {
        assert_eq!(serde_json::to_string(&Line::from(answer.clone())).unwrap(), text);
        assert_eq!(Answer::from(serde_json::from_str::<Line>(text).unwrap()), answer);
    }
    assert!(serde_json::from_str::<Line>("{}").is_err());
}
