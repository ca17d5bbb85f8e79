//! Which member holds which column of a stripe.

use manylogs_block::narrow;
use manylogs_plant::{self as plant, Bug};

/// The places of data and parity among the members, as md's layout `left-symmetric`: parity moves
/// back by one member from stripe to stripe, and data begins behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Number of members.
    pub members: u16,
    /// Members of each stripe that hold parity: 1 or 2.
    pub parity: u16,
}

impl Rotation {
    /// Number of members of each stripe that hold data.
    #[must_use]
    pub const fn columns(self) -> u16 {
        self.members - self.parity
    }

    /// The member that holds a column of data in a stripe.
    #[must_use]
    pub fn of_data(self, stripe: u64, column: u16) -> u16 {
        self.wrapped(self.first_parity(stripe) + u64::from(self.parity) + u64::from(column))
    }

    /// The member that holds a parity of a stripe: 0 is the sum, 1 the weighted sum of RAID-6.
    #[must_use]
    pub fn of_parity(self, stripe: u64, which: u16) -> u16 {
        let off = u64::from(plant::is(Bug::ParityOnWrongMember) && stripe % 2 == 1);
        self.wrapped(self.first_parity(stripe) + u64::from(which) + off)
    }

    fn first_parity(self, stripe: u64) -> u64 {
        let members = u64::from(self.members);
        members - 1 - stripe % members
    }

    fn wrapped(self, member: u64) -> u16 {
        narrow(member % u64::from(self.members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_moves_back_and_data_follows_it_as_with_md() {
        let five = Rotation { members: 4, parity: 1 };
        let of = |stripe| {
            let data = (0..3).map(move |column| five.of_data(stripe, column));
            (five.of_parity(stripe, 0), data.collect::<Vec<_>>())
        };
        assert_eq!(of(0), (3, vec![0, 1, 2]));
        assert_eq!(of(1), (2, vec![3, 0, 1]));
        assert_eq!(of(3), (0, vec![1, 2, 3]));
        assert_eq!(of(4), of(0));
        let six = Rotation { members: 5, parity: 2 };
        let of = |stripe| [six.of_parity(stripe, 0), six.of_parity(stripe, 1)];
        assert_eq!(of(0), [4, 0]);
        assert_eq!(of(1), [3, 4]);
        assert_eq!((0..3).map(|column| six.of_data(1, column)).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
