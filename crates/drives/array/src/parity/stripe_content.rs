//! The contents of a stripe's columns: parity from data, and missing data from the rest.

use manylogs_block::{Payload, Sectors};

use super::field::{inverse, multiply, power, sum};

/// The weight of a data column in a parity.
fn weight(which: u16, column: u16) -> u8 {
    if which == 0 { 1 } else { power(column) }
}

/// A parity of the contents of all data columns, each of length `len`: 0 is the sum, 1 the weighted
/// sum of RAID-6.
#[must_use]
pub fn parity_of(which: u16, data: &[Payload], len: Sectors) -> Payload {
    let terms: Vec<(u8, &Payload)> =
        (0..).zip(data).map(|(column, content)| (weight(which, column), content)).collect();
    sum(len, &terms)
}

/// A parity after columns of data have changed: `changes` has the column, its old content and its
/// new one.
pub(super) fn parity_after(
    which: u16,
    old: &Payload,
    changes: &[(u16, Payload, Payload)],
    len: Sectors,
) -> Payload {
    let mut terms = vec![(1, old)];
    for (column, before, after) in changes {
        let weight = weight(which, *column);
        terms.extend([(weight, before), (weight, after)]);
    }
    sum(len, &terms)
}

/// Computes the missing contents of data columns from the others and from the parities, all of
/// length `len`. `None` if too much is missing.
#[must_use]
pub fn completed(
    data: Vec<Option<Payload>>,
    parities: &[Option<Payload>],
    len: Sectors,
) -> Option<Vec<Payload>> {
    let missing: Vec<u16> =
        (0..).zip(&data).filter(|(_, it)| it.is_none()).map(|(column, _)| column).collect();
    let found = |which: usize| parities.get(which).and_then(Option::as_ref);
    // What the missing columns add to a parity.
    let rest = |which: u16, parity: &Payload| {
        let known = (0..).zip(&data).filter_map(|(column, it)| Some((column, it.as_ref()?)));
        let terms = known.map(|(column, content)| (weight(which, column), content));
        sum(len, &[(1, parity)].into_iter().chain(terms).collect::<Vec<_>>())
    };
    let solved = match (missing.as_slice(), found(0), found(1)) {
        ([], _, _) => Vec::new(),
        ([_], Some(first), _) => vec![rest(0, first)],
        ([one], None, Some(second)) => {
            vec![sum(len, &[(inverse(power(*one)), &rest(1, second))])]
        }
        ([one, two], Some(first), Some(second)) => {
            let (first, second) = (rest(0, first), rest(1, second));
            let apart = inverse(power(*one) ^ power(*two));
            let content = sum(len, &[(multiply(apart, power(*two)), &first), (apart, &second)]);
            let other = sum(len, &[(1, &first), (1, &content)]);
            vec![content, other]
        }
        _ => return None,
    };
    let mut solved = solved.into_iter();
    data.into_iter().map(|content| content.or_else(|| solved.next())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: Sectors = Sectors(2);

    fn data() -> Vec<Payload> {
        let mut bytes = vec![3; 512];
        bytes.extend([9; 512]);
        vec![
            Payload::tags(1, LEN),
            Payload::bytes(bytes),
            Payload::zeroes(LEN),
            Payload::tags(7, LEN),
        ]
    }

    fn is_same((one, other): (&Payload, &Payload)) -> bool {
        one.sectors().eq(other.sectors())
    }

    #[test]
    fn any_two_of_a_stripe_come_back() {
        let data = data();
        let parities = [0, 1].map(|which| parity_of(which, &data, LEN));
        for one in 0..6 {
            for two in 0..6 {
                let gone = |at: usize| at == one || at == two;
                let kept = |(at, it): (usize, &Payload)| (!gone(at)).then(|| it.clone());
                let rest = data.iter().enumerate().map(kept).collect();
                let parities: Vec<_> =
                    (4..).zip(&parities).map(|(at, it)| kept((at, it))).collect();
                let found = completed(rest, &parities, LEN).unwrap();
                assert!(found.iter().zip(&data).all(is_same), "{one} {two}: {found:?}");
            }
        }
        let none = completed(vec![None; 4], &[None, None], LEN);
        assert_eq!(none, None);
    }

    #[test]
    fn a_change_of_data_changes_parity_as_all_data_would() {
        let mut changed = data();
        let change = |column: usize, to: &Payload| {
            let column_number = manylogs_block::narrow(column as u64);
            (column_number, data()[column].clone(), to.clone())
        };
        let new = Payload::tags(40, LEN);
        let changes = [change(1, &new), change(3, &Payload::zeroes(LEN))];
        (changed[1], changed[3]) = (new, Payload::zeroes(LEN));
        for which in [0, 1] {
            let before = parity_of(which, &data(), LEN);
            let after = parity_after(which, &before, &changes, LEN);
            assert!(is_same((&after, &parity_of(which, &changed, LEN))));
        }
    }
}
