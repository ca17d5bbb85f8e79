//! The block of extended attributes that an inode may have, alone or with others.

use std::rc::Rc;

use crate::cache::{Buffer, Checked};
use crate::checksum::crc;
use crate::core::Core;
use crate::error::{Corruption, Place, Result};
use crate::journal::Handle;
use crate::ondisk::bytes::{le32, put_le32};
use crate::ondisk::inode::RawInode;
use crate::units::{BLOCK_SECTORS, BlockNo, Ino, Run};

const MAGIC: u32 = 0xEA02_0000;
const USERS: usize = 4;
const CHECKSUM: usize = 16;

impl Core {
    /// Takes the block of attributes away from an inode that ends. The caller writes the inode.
    pub(crate) async fn drop_attributes(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
    ) -> Result<()> {
        let block = raw.attribute_block();
        if block.0 == 0 {
            return Ok(());
        }
        let buffer = self.attribute_block(ino, block).await?;
        let users = le32(&buffer.bytes(), USERS);
        if users > 1 {
            let seed = self.geometry.seed;
            handle.change(&buffer, |bytes| {
                put_le32(bytes, USERS, users - 1);
                if let Some(seed) = seed {
                    let sum = checksum(seed, block, bytes);
                    put_le32(bytes, CHECKSUM, sum);
                }
            });
        } else {
            self.free(handle, ino, Run { start: block, blocks: 1 }, true).await?;
        }
        raw.clear_attribute_block();
        raw.set_sectors(raw.sectors().saturating_sub(BLOCK_SECTORS));
        Ok(())
    }

    async fn attribute_block(&self, ino: Ino, block: BlockNo) -> Result<Rc<Buffer>> {
        let bad = |what| Corruption::of(Place::Block(ino, block), what);
        if !self.geometry.is_data(Run { start: block, blocks: 1 }) {
            return Err(bad("attributes lie where no file can be").into());
        }
        let buffer = self.read(block).await?;
        let sound = |bytes: &[u8]| {
            let whole = |seed| checksum(seed, block, bytes) == le32(bytes, CHECKSUM);
            le32(bytes, 0) == MAGIC && self.geometry.seed.is_none_or(whole)
        };
        if !buffer.is_checked(Checked::Attributes, sound) {
            return Err(bad("attributes are damaged").into());
        }
        Ok(buffer)
    }
}

fn checksum(seed: u32, block: BlockNo, bytes: &[u8]) -> u32 {
    let sum = crc(crc(seed, &block.0.to_le_bytes()), &bytes[..CHECKSUM]);
    crc(crc(sum, &[0; 4]), &bytes[CHECKSUM + 4..])
}
