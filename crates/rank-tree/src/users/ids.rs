//! The encoded ids of a segment, by local number.
//!
//! Ids live in pages of 1,024 neighbours. As long as all ids of a page have the same length, which ids made by a program nearly
//! always have, the page is one array, and an id is one look into memory away. A page whose ids differ in length is blocks of 32
//! ids, back to back in an allocation of the exact size: two looks, and one byte a user for the length.
//!
//! Pages do not know which locals are in use; the segment does. An unused place in an array page keeps old bytes until the page
//! is used by few or none, and the memory is given back then.

const PAGE: usize = 1_024;
const BLOCK: usize = 32;
/// An array page with fewer users than this becomes blocks, which take only the bytes of ids in use.
const ARRAY_USERS_MIN: u32 = 256;

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
    lengths: [u8; PAGE],
    blocks: [Box<[u8]>; PAGE / BLOCK],
}

impl Ids {
    /// Whether a local in use has this id.
    #[inline]
    pub(super) fn is(&self, local: u32, encoded: &[u8]) -> bool {
        self.get(local) == encoded
    }

    /// The id of a local in use.
    #[inline]
    pub(super) fn get(&self, local: u32) -> &[u8] {
        let (page, place) = (local as usize / PAGE, local as usize % PAGE);
        match &self.pages[page].form {
            Form::Array { length, bytes } => {
                let length = *length as usize;
                &bytes[place * length..][..length]
            }
            Form::Blocks(blocks) => blocks.get(place),
        }
    }

    /// Writes the id of a local that had none.
    pub(super) fn put(&mut self, local: u32, encoded: &[u8]) {
        let (page, place) = (local as usize / PAGE, local as usize % PAGE);
        if page >= self.pages.len() {
            // A segment that needs a second page will fill it; the first may stay small.
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
                // Which places are in use is the segment's to know, so it is asked to turn the page first.
                unreachable!("`fits` was asked before")
            }
            Form::Blocks(blocks) => blocks.put(place, encoded),
        }
    }

    /// Whether an id of this length can be put at a local as the page is.
    pub(super) fn fits(&self, local: u32, length: usize) -> bool {
        match self.pages.get(local as usize / PAGE).map(|page| &page.form) {
            Some(Form::Array { length: array_length, .. }) => *array_length as usize == length,
            Some(Form::Blocks(_)) | None => true,
        }
    }

    /// Forgets the id of a local; true if its page would now be smaller as blocks.
    pub(super) fn take(&mut self, local: u32) -> bool {
        let (page, place) = (local as usize / PAGE, local as usize % PAGE);
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

    /// Turns a local's page into blocks of the ids that are in use.
    pub(super) fn turn_to_blocks(&mut self, local: u32, in_use: impl Fn(u32) -> bool) {
        let page = local as usize / PAGE;
        let first = (page * PAGE) as u32;
        let mut blocks = Box::new(Blocks {
            lengths: [0; PAGE],
            blocks: [const { Vec::new() }; 32].map(Vec::into_boxed_slice),
        });
        for place in (0..PAGE).filter(|place| in_use(first + *place as u32)) {
            blocks.put(place, self.get(first + place as u32));
        }
        self.pages[page].form = Form::Blocks(blocks);
    }

    pub(super) fn memory(&self) -> usize {
        let pages = self.pages.iter().map(|page| match &page.form {
            Form::Array { bytes, .. } => bytes.capacity(),
            Form::Blocks(blocks) => {
                size_of::<Blocks>() + blocks.blocks.iter().map(|block| block.len()).sum::<usize>()
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
