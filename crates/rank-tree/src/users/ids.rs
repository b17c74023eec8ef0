//! The encoded ids of all users, by number.
//!
//! Ids live in pages of 16,384 neighbours. As long as all ids of a page have the same length, which ids made by a program nearly
//! always have, the page is one array, and an id is one look into memory away. A page whose ids differ in length is blocks of 32
//! ids, back to back in an allocation of the exact size: two looks, and one byte a user for the length.
//!
//! Pages do not know which numbers are in use; the table of users does. An unused place in an array page keeps old bytes until the page
//! is used by few or none, and the memory is given back then.

const PAGE: usize = 16_384;
const BLOCK: usize = 32;
/// An array page with fewer users than this becomes blocks, which take only the bytes of ids in use.
const ARRAY_USERS_MIN: u32 = PAGE as u32 / 4;

#[derive(Debug, Default)]
pub(super) struct Ids {
    pages: Vec<Page>,
}

#[derive(Debug)]
struct Page {
    users: u32,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// All ids have this length; the place of an id follows from its number.
    Array {
        length: u32,
        bytes: Vec<u8>,
    },
    Blocks(Box<Blocks>),
}

#[derive(Debug)]
struct Blocks {
    /// 0 where there is no id.
    lengths: Box<[u8]>,
    blocks: Box<[Box<[u8]>]>,
}

impl Ids {
    /// Whether a number in use has this id.
    #[inline]
    pub(super) fn is(&self, number: u32, encoded: &[u8]) -> bool {
        self.get(number) == encoded
    }

    /// The id of a number in use.
    #[inline]
    pub(super) fn get(&self, number: u32) -> &[u8] {
        let (page, place) = (number as usize / PAGE, number as usize % PAGE);
        match &self.pages[page].form {
            Form::Array { length, bytes } => {
                let length = *length as usize;
                &bytes[place * length..][..length]
            }
            Form::Blocks(blocks) => blocks.get(place),
        }
    }

    /// Writes the id of a number that had none.
    pub(super) fn put(&mut self, number: u32, encoded: &[u8]) {
        let (page, place) = (number as usize / PAGE, number as usize % PAGE);
        if page >= self.pages.len() {
            // Who needs a second page will fill it; the first may stay small.
            let reserve = if page > 0 { PAGE * encoded.len() } else { 0 };
            let bytes = Vec::with_capacity(reserve);
            let form = Form::Array { length: encoded.len() as u32, bytes };
            self.pages.reserve_exact(page + 1 - self.pages.len());
            self.pages.push(Page { users: 0, form });
        }
        let page = &mut self.pages[page];
        page.users += 1;
        match &mut page.form {
            Form::Array { length, bytes } if *length as usize == encoded.len() => {
                let start = place * encoded.len();
                if start + encoded.len() > bytes.len() {
                    bytes.resize(start + encoded.len(), 0);
                }
                bytes[start..start + encoded.len()].copy_from_slice(encoded);
            }
            Form::Array { .. } => {
                // Which places are in use is the table's to know, so it turns the page first.
                unreachable!("`fits` was asked before")
            }
            Form::Blocks(blocks) => blocks.put(place, encoded),
        }
    }

    /// Whether an id of this length can be put at a number as the page is.
    pub(super) fn fits(&self, number: u32, length: usize) -> bool {
        match self.pages.get(number as usize / PAGE).map(|page| &page.form) {
            Some(Form::Array { length: array_length, .. }) => *array_length as usize == length,
            Some(Form::Blocks(_)) | None => true,
        }
    }

    /// Forgets the id of a number; true if its page would now be smaller as blocks.
    pub(super) fn take(&mut self, number: u32) -> bool {
        let (page, place) = (number as usize / PAGE, number as usize % PAGE);
        let page = &mut self.pages[page];
        page.users -= 1;
        match &mut page.form {
            Form::Blocks(blocks) => {
                blocks.take(place);
                false
            }
            // A page that is only begun is not a page that has been left.
            Form::Array { length, bytes } => {
                page.users < ARRAY_USERS_MIN && bytes.len() >= *length as usize * PAGE / 2
            }
        }
    }

    /// Turns a number's page into blocks of the ids that are in use.
    pub(super) fn turn_to_blocks(&mut self, number: u32, in_use: impl Fn(u32) -> bool) {
        let page = number as usize / PAGE;
        let first = (page * PAGE) as u32;
        let mut lengths = vec![0; PAGE].into_boxed_slice();
        let blocks = (0..PAGE)
            .step_by(BLOCK)
            .map(|start| {
                let mut block = Vec::new();
                for place in (start..start + BLOCK).filter(|place| in_use(first + *place as u32)) {
                    let encoded = self.get(first + place as u32);
                    lengths[place] = encoded.len() as u8;
                    block.extend_from_slice(encoded);
                }
                block.into_boxed_slice()
            })
            .collect();
        let blocks = Box::new(Blocks { lengths, blocks });
        self.pages[page].form = Form::Blocks(blocks);
    }

    pub(super) fn memory(&self) -> usize {
        let pages = self.pages.iter().map(|page| match &page.form {
            Form::Array { bytes, .. } => bytes.capacity(),
            Form::Blocks(blocks) => {
                PAGE + blocks.blocks.iter().map(|block| size_of_val(block) + block.len()).sum::<usize>()
            }
        });
        pages.sum::<usize>() + self.pages.capacity() * size_of::<Page>()
    }
}

impl Blocks {
    #[inline]
    fn get(&self, place: usize) -> &[u8] {
        let start = self.start(place);
        &self.blocks[place / BLOCK][start..start + usize::from(self.lengths[place])]
    }

    fn put(&mut self, place: usize, encoded: &[u8]) {
        self.splice(place, 0, encoded);
        self.lengths[place] = encoded.len() as u8;
    }

    fn take(&mut self, place: usize) {
        self.splice(place, usize::from(self.lengths[place]), &[]);
        self.lengths[place] = 0;
    }

    /// Where in its block an id begins.
    #[inline]
    fn start(&self, place: usize) -> usize {
        let first = place - place % BLOCK;
        self.lengths[first..place].iter().map(|length| usize::from(*length)).sum()
    }

    /// Replaces the `old` bytes at a place by `new` ones.
    fn splice(&mut self, place: usize, old: usize, new: &[u8]) {
        let start = self.start(place);
        let block = &mut self.blocks[place / BLOCK];
        let mut bytes = Vec::with_capacity(block.len() + new.len() - old);
        bytes.extend_from_slice(&block[..start]);
        bytes.extend_from_slice(new);
        bytes.extend_from_slice(&block[start + old..]);
        *block = bytes.into_boxed_slice();
    }
}
