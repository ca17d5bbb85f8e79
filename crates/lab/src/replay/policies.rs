//! The list of policies on a command line.

use manylogs::Policy;
use manylogs_block::Sectors;
use thiserror::Error;

/// A policy and the words that chose it.
#[derive(Clone, Debug)]
pub struct NamedPolicy {
    /// As the user wrote it; the key in every output.
    pub name: String,
    /// What it means.
    pub policy: Policy,
}

impl NamedPolicy {
    /// The largest write that the policy logs; `None` if it logs nothing.
    #[must_use]
    pub const fn threshold(&self) -> Option<Sectors> {
        match &self.policy {
            Policy::NoLogging => None,
            Policy::SingleLog(config) | Policy::Mlb(config) => Some(config.threshold),
        }
    }
}

/// Why a list of policies was refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PolicyListError {
    /// One is not a policy.
    #[error(transparent)]
    Policy(#[from] manylogs::PolicyError),
    /// One is there twice, and would be one key in the output.
    #[error("policy {0:?} is given twice")]
    Twice(String),
}

/// Parses lists of policies.
///
/// Commas separate both policies and the options of one. An option is `key=value`, a policy is a
/// name with perhaps `:` and its first option behind it, so `mlb:log=5M,swap=0.7,nologging` is two
/// policies.
///
/// # Errors
/// For an unknown policy or option, and for one given twice.
pub fn parse_policies<S: AsRef<str>>(lists: &[S]) -> Result<Vec<NamedPolicy>, PolicyListError> {
    let mut found: Vec<NamedPolicy> = Vec::new();
    for name in lists.iter().flat_map(|list| split(list.as_ref())) {
        if found.iter().any(|other| other.name == name) {
            return Err(PolicyListError::Twice(name));
        }
        let policy = name.parse()?;
        found.push(NamedPolicy { name, policy });
    }
    Ok(found)
}

fn split(list: &str) -> Vec<String> {
    let mut policies: Vec<String> = Vec::new();
    for piece in list.split(',') {
        let piece = piece.trim();
        match policies.last_mut() {
            Some(policy) if is_option(piece) => {
                policy.push(',');
                policy.push_str(piece);
            }
            _ => policies.push(piece.to_owned()),
        }
    }
    policies
}

fn is_option(piece: &str) -> bool {
    piece.split_once('=').is_some_and(|(key, _)| !key.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stay_with_their_policy() {
        let list = "nologging,mlb:log=5M,swap=0.7,single-log:log=5G,place=50%,mlb-32";
        assert_eq!(
            split(list),
            ["nologging", "mlb:log=5M,swap=0.7", "single-log:log=5G,place=50%", "mlb-32"]
        );
    }

    #[test]
    fn a_policy_given_twice_is_an_error() {
        let error = parse_policies(&["nologging,mlb-32", "nologging"]).unwrap_err();
        assert!(matches!(error, PolicyListError::Twice(name) if name == "nologging"));
    }
}
