"""HTML scanner: extracts the elements of a page and its blocks of text in one pass over its bytes.

It follows HTML's rules for implied end tags, tables and lists (HTML Standard, 13.2.6) if they affect the block that
contains a text. Inline elements are not in the tree, and overlapping formatting elements are not repaired. The time is
linear in the page's bytes for any input.
"""

# ruff: noqa: FBT001

from collections.abc import Iterable
from functools import cache
from html.entities import html5
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled
from longcrawl.kernels.memory import TESTED, copy_block, find_blanks, find_byte, find_marked, find_white, lowest_bit

VOID, RAW, BLOCK, UNSEEN, CLOSES_PARAGRAPH, SCOPE, TABLE_PART = (1 << bit for bit in range(7))
"""Properties of a tag, as bits.

``VOID`` has no end tag; ``RAW`` contains no markup; ``BLOCK`` is an element of the tree; ``UNSEEN`` is not displayed;
``CLOSES_PARAGRAPH`` ends an open ``p``; ``SCOPE`` shields the elements inside it from end tags outside; ``TABLE_PART``
belongs to a table.
"""

_PLAIN_BLOCKS = (
    "address article aside blockquote center details dialog dd dir div dl dt fieldset figcaption figure footer form "
    "frameset h1 h2 h3 h4 h5 h6 header hgroup hr legend li main menu nav ol optgroup p pre search section summary ul "
    "noscript"
)
_TABLE_PARTS = "table caption colgroup thead tbody tfoot tr td th"
_RAW = "script style textarea title xmp iframe noembed noframes"
_UNSEEN_BLOCKS = "head svg math foreignobject canvas object applet video audio select button template datalist map"
_VOID = "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
_LINES = "html body a pre br li"
_OPEN_PARAGRAPHS = "legend optgroup"
_SCOPES = "html table td th caption object template applet svg"

_ALL = f"{_LINES} {_PLAIN_BLOCKS} {_TABLE_PARTS} {_RAW} {_UNSEEN_BLOCKS} {_VOID}"

TAGS = ("", "custom", *dict.fromkeys(_ALL.split()))
"""Names of tags by code; 0 is any inline tag except ``a``, 1 any name with a hyphen. The model depends on the codes."""

CODE = {name: code for code, name in enumerate(TAGS)}
CUSTOM = CODE["custom"]

LETTERS = 13
"""Maximum length of a known tag name."""

REFERENCE_BITS = 13

FNV, PRIME = 0xCBF29CE484222325, 0x100000001B3
"""Start and factor of the 64-bit FNV-1a hash."""
_MIX = 0x9E3779B97F4A7C15


_WORDS = {
    "comment": "comment,disqus,respond, reply, replies,discussion,kommentar,feedback,forum,livefyre,guestbook",
    "navigation": " nav,navi,menu,pagination,pager,paging, skip,sitemap,tabs,breadcrumb,crumb",
    "footer": "foot,bottom,copyright,imprint,colophon, legal,impressum",
    "header": "header,masthead,topbar,banner,branding,logo, top ,toolbar,kopf",
    "side": (
        "sidebar, side ,aside,rail,complementary,widget,secondary,tertiary,rightcol,leftcol,right col,"
        "left col,marginal, right , left "
    ),
    "share": "share,sharing,social,twitter,facebook,pinterest,addthis, sns,follow,whatsapp,linkedin,jetpack",
    "subscribe": (
        "subscri,newsletter,signup,sign up,mailing,login,log in,register,account,paywall,donat, cta,call to,abo ,member"
    ),
    "related": (
        "related,recommend,similar,popular,trending,read more,readmore, also ,latest,recent,outbrain,taboola,"
        "recirc,most read,mostread,you may,mehr zum,weiter,similaire,verwandt"
    ),
    "teaser": "teaser,promo, more, next, prev,preview,highlight,featured,suggest",
    "advertisement": (
        " ad , ads ,advert,sponsor,adsense, dfp,werbung,anzeige,affiliate,commercial,adslot,ad slot,ad unit,"
        "ad container,ad wrapper,promotion"
    ),
    "date": "meta,date, time,timestamp,published,posted, info,stats,count",
    "author": "author,byline, bio,profile,avatar,vcard,contributor,autor,credits",
    "tag": " tag , tags ,taglist,tag list,tagcloud,tag cloud,categor,topic,keyword,label,hashtag,schlagw",
    "caption": "caption, credit ,figure,bildunter,legend",
    "image": (
        "gallery,slideshow,carousel,slider,image,photo, img,media,video,player,embed,iframe,podcast,audio,galerie,thumb"
    ),
    "hidden": (
        "hidden,screen reader,screenreader, sr only,visually,noprint,no print,print only,invisible,modal,"
        "popup,overlay,tooltip,dropdown,lightbox,dialog,offcanvas,off canvas,noscript"
    ),
    "notice": "cookie,consent,gdpr,privacy,notice,alert,message,warning,disclaimer,error,hint",
    "disclosed": "accordion,tabpanel,tab panel,tab content,tab pane,collaps,expand,faq,panel,answer,disclosure",
    "index": (
        " toc,table of contents, index,jump,anchor,infobox,navbox,reference,footnote,citation,edit section,"
        "editsection,hatnote,catlinks"
    ),
    "form": "form ,search,filter,input,button, btn,rating, vote, poll ,quiz,survey,review,captcha,contact",
    "article": "article,story, blog,news ,recipe,entry,artikel,beitrag,articulo,noticia",
    "content": (
        "content,text,body, copy,richtext,prose,markdown,paragraph,inhalt,contenu,contenido,wysiwyg,description"
    ),
    "main": " main,primary,center,column,container,wrapper,layout,page",
    "post": "post,single,hentry,permalink,postbody,post body,node ",
    "title": "title,headline,heading,kicker,rubric,slug,titre,ueberschrift",
    "list": " list,grid,card, item, tile, box,module,panel,feed,archive,loop",
}
GROUPS = {name: tuple(words.split(",")) for name, words in _WORDS.items()}
"""Words in classes, ids and roles, grouped by the meaning of the element; a space is the beginning or end of a word."""

HIDDEN = list(GROUPS).index("hidden")
"""The group that is also set by ``aria-hidden``."""
_DISCLOSED = 1 << list(GROUPS).index("disclosed")
"""The group of elements that a reader can display."""

NAMES = 8
"""Maximum number of words of an element's class, id, role and itemprop that are stored."""
NAME_BITS = 12
"""Size of the hash of such a word."""

KINDS = (
    ("Product", "ProductGroup", "IndividualProduct", "ProductModel", "Vehicle", "Offer", "AggregateOffer"),
    ("Article", "NewsArticle", "BlogPosting", "Blog", "ReportageNewsArticle", "OpinionNewsArticle", "ScholarlyArticle"),
    ("ItemList", "CollectionPage", "OfferCatalog", "SearchResultsPage"),
    ("DiscussionForumPosting", "QAPage", "Question", "Answer", "Comment", "SocialMediaPosting"),
    ("FAQPage", "Service", "LocalBusiness", "SoftwareApplication", "ProfessionalService", "WebApplication"),
    ("TechArticle", "APIReference", "HowTo", "Course"),
    ("Recipe",),
)
"""Types of schema.org that distinguish kinds of pages."""


class Markup(NamedTuple):
    """Lookup tables of the scanner."""

    keys: npt.NDArray[np.uint64]
    """Shape (256,): hash table of tag names as numbers; 0 is empty."""
    codes: npt.NDArray[np.uint8]
    """Shape (256,): codes of the tags in ``keys``."""
    kinds: npt.NDArray[np.int64]
    """Shape (tags,): properties of a tag."""
    reference_keys: npt.NDArray[np.uint64]
    """Shape (2**13,): hash table of the hashes of character references' names."""
    references: npt.NDArray[np.uint8]
    """Shape (2**13, 8): the length of a reference's text in bytes, and its UTF-8."""
    steps: npt.NDArray[np.int16]
    """Shape (states, 27): the next state after a letter, or after anything else in column 0."""
    found: npt.NDArray[np.int64]
    """Shape (states,): the groups of words that end here, one bit each."""
    types: npt.NDArray[np.uint64]
    """Shape (types,): hashes of schema.org's types that distinguish kinds of pages."""
    type_kinds: npt.NDArray[np.int64]
    """Shape (types,): the bit of the kind of each type."""


def name_key(name: str) -> int:
    """Return the name of a tag as a number, as the scanner computes it: five bits a character."""
    key = 0
    for character in name:
        key = key << 5 | (ord(character) - 96 if character.isalpha() else ord(character) - ord("0") + 26)
    return key


def reference_hash(name: bytes) -> int:
    """Return the 64-bit FNV-1a hash of a character reference's name, as the scanner computes it."""
    value = FNV
    for byte in name:
        value = (value ^ byte) * PRIME & 0xFFFFFFFFFFFFFFFF
    return value


def _kind(name: str) -> int:
    blocks, parts = _PLAIN_BLOCKS.split(), _TABLE_PARTS.split()
    kind = VOID * (name in _VOID.split()) | RAW * (name in _RAW.split()) | UNSEEN * (name in _UNSEEN_BLOCKS.split())
    kind |= BLOCK * (name in (*blocks, *parts, *_UNSEEN_BLOCKS.split(), "html", "body", "custom"))
    kind |= CLOSES_PARAGRAPH * ((name in blocks or name == "table") and name not in _OPEN_PARAGRAPHS.split())
    return kind | SCOPE * (name in _SCOPES.split()) | TABLE_PART * (name in parts and name != "table")


def _automaton(words: Iterable[tuple[int, str]]) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64]]:
    """Return the Aho-Corasick automaton that finds words of letters; a space is anything but a letter."""
    children: list[dict[int, int]] = [{}]
    own = [0]
    for group, word in words:
        state = 0
        for character in word:
            letter = 0 if character == " " else ord(character) - 96
            if letter not in children[state]:
                children[state][letter] = len(children)
                children.append({})
                own.append(0)
            state = children[state][letter]
        own[state] |= 1 << group
    steps = np.zeros((len(children), 27), np.int16)
    found, fallback, queue = np.array(own, np.int64), [0] * len(children), [0]
    for state in queue:
        if state:
            steps[state] = steps[fallback[state]]
            found[state] |= found[fallback[state]]
        for letter, child in children[state].items():
            fallback[child] = int(steps[state, letter]) if state else 0
            steps[state, letter] = child
            queue.append(child)
    return steps, found


@cache
def load_markup() -> Markup:
    """Build the lookup tables, which takes a few milliseconds."""
    keys, codes = np.zeros(256, np.uint64), np.zeros(256, np.uint8)
    for code, name in enumerate(TAGS[2:], 2):
        at = tag_slot(name_key(name))
        while keys[at]:
            at = at + 1 & 255
        keys[at], codes[at] = name_key(name), code
    size = 1 << REFERENCE_BITS
    reference_keys, references = np.zeros(size, np.uint64), np.zeros((size, 8), np.uint8)
    for name, text in html5.items():
        key = reference_hash(name.encode())
        at = key >> 64 - REFERENCE_BITS
        while reference_keys[at]:
            at = at + 1 & size - 1
        stands_for = text.encode()
        reference_keys[at], references[at, 0] = key, len(stands_for)
        references[at, 1 : 1 + len(stands_for)] = list(stands_for)
    steps, found = _automaton((number, word) for number, words in enumerate(GROUPS.values()) for word in words)
    types = [(reference_hash(name.encode()), 1 << number) for number, names in enumerate(KINDS) for name in names]
    hashes, bits = (
        np.array(each, kind) for each, kind in zip(zip(*types, strict=True), (np.uint64, np.int64), strict=True)
    )
    kinds = np.array([_kind(name) for name in TAGS])
    return Markup(keys, codes, kinds, reference_keys, references, steps, found, hashes, bits)


def tag_slot(key: int) -> int:
    """Return the first slot to search for a tag name."""
    return (key * _MIX & 0xFFFFFFFFFFFFFFFF) >> 56


Bytes = npt.NDArray[np.uint8]

LESS, MORE, AND, SLASH = (ord(each) for each in "<>&/")
HAS_TARGET, IS_HIDDEN, IS_DATA, _IS_CONDITIONAL, _IS_SHOWN, _IS_SWITCH = (1 << bit for bit in range(62, 56, -1))
"""Bits that mark a link with a target, an element that is not displayed, a script with JSON-LD, a style for some
screens, an element that is displayed although an attribute or a rule hides it, and one that displays another."""
_OF_ELEMENTS = IS_HIDDEN | _IS_SWITCH | (1 << 56) - 1
"""Bits of a tag that its element keeps."""
STYLES = 1 << 12
"""Size of the table of selectors."""

_SPACE, _EQUALS, _DASH, _EXCLAMATION, _SEMICOLON, _NUMBER = (ord(each) for each in " =-!;#")
_WIDE_SPACES = tuple(int.from_bytes(chr(each).encode()) for each in (*range(0x2000, 0x200B), 0x2028, 0x2029))
_MORE_SPACES = tuple(int.from_bytes(chr(each).encode()) for each in (0x202F, 0x205F, 0x3000))
_SHOWS_NOTHING = tuple(int.from_bytes(chr(each).encode()) for each in (0x180E, 0x200B, *range(0x2060, 0x2065), 0xFEFF))
_U = np.uint64


@compiled
def next_byte(page: Bytes, at: int, end: int, byte: int) -> int:
    """Return the next position of a byte, or ``end``."""
    address = np.int64(page.ctypes.data)
    while at + TESTED <= end:
        found = find_byte(address + at, byte)
        if found != _U(0):
            return at + lowest_bit(found)
        at += TESTED
    while at < end and page[at] != byte:
        at += 1
    return at


@compiled
def _name_end(page: Bytes, at: int, end: int) -> int:
    """Return the end of an attribute's name."""
    address = np.int64(page.ctypes.data)
    while at + TESTED <= end:
        here = address + at
        found = find_white(here) | find_byte(here, _EQUALS) | find_byte(here, MORE) | find_byte(here, SLASH)
        if found != _U(0):
            return at + lowest_bit(found)
        at += TESTED
    while at < end and page[at] not in (MORE, SLASH, _EQUALS) and not is_space(page[at]):
        at += 1
    return at


@compiled
def is_space(byte: int) -> bool:
    """Return whether a byte is ASCII white space."""
    return byte == _SPACE or 9 <= byte <= 13


@compiled
def wide_space(data: Bytes, at: int, end: int) -> int:
    """Return the size of white space beyond ASCII at a byte, its negative for a mark that is not text, or 0.

    Such marks are invisible and have no meaning of their own: soft hyphens, zero-width spaces, word joiners, invisible
    operators. U+200C and U+200D are text: they change the letters and emoji around them, as do variation selectors.
    """
    if data[at] == 0xC2:
        if at + 1 < end and data[at + 1] == 0xAD:
            return -2
        return 2 if at + 1 < end and data[at + 1] in (0x85, 0xA0) else 0
    if at + 2 >= end or data[at] < 0xE1:
        return 0
    point = np.int64(data[at]) << 16 | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2])
    if point in _SHOWS_NOTHING:
        return -3
    return 3 if point in _WIDE_SPACES or point in _MORE_SPACES else 0


@compiled
def is_letter(byte: int) -> bool:
    """Return whether a byte is an ASCII letter."""
    return 97 <= (byte | 32) <= 122


@compiled
def tag_code(page: Bytes, at: int, end: int, markup: Markup) -> tuple[int, int, int]:
    """Return the code of the tag with a name that begins at a byte, the end of the name, and the name as a number."""
    key, begin, hyphen, known = _U(0), at, False, True
    while at < end:
        byte = page[at]
        if is_letter(byte):
            key = key << _U(5) | _U((byte | 32) - 96)
        elif 48 <= byte <= 54:
            key = key << _U(5) | _U(byte - 48 + 26)
        elif byte in (MORE, SLASH) or is_space(byte):
            break
        else:
            hyphen |= byte == _DASH
            known = False
        at += 1
    if hyphen:
        return CUSTOM, at, key
    if at - begin > LETTERS or not known:
        return 0, at, key
    slot = np.int64(key * _U(_MIX) >> _U(56))
    while markup.keys[slot] != key:
        if markup.keys[slot] == 0:
            return 0, at, key
        slot = slot + 1 & 255
    return np.int64(markup.codes[slot]), at, key


@compiled
def name_bucket(key: int) -> int:
    """Return the bucket of a word's hash, from 1 on."""
    return 1 + np.int64(key * _U(_MIX) >> _U(64 - NAME_BITS))


@compiled
def _add_name(found: Any, key: int, letters: int) -> None:
    """Store the hash of a word of a class, id, role or itemprop."""
    if letters > 1 and found[_COUNT] < NAMES:
        found[_FIRST_NAME + found[_COUNT]] = name_bucket(key)
        found[_COUNT] += 1


@compiled
def _find_words(page: Bytes, at: int, end: int, markup: Markup, found: Any) -> int:
    """Store the words in the value of an attribute, and return the hash of its letters.

    A capital after a lower-case letter begins a word.
    """
    state, groups, lower = np.int64(markup.steps[0, 0]), np.int64(0), False
    whole, key, letters = _U(FNV), _U(FNV), 0
    while at < end:
        byte = np.int64(page[at])
        letter = byte | 32
        at += 1
        if 97 <= letter <= 122:
            if lower and byte < 97:
                state = np.int64(markup.steps[state, 0])
                groups |= markup.found[state]
                _add_name(found, key, letters)
                key, letters = _U(FNV), 0
            state = np.int64(markup.steps[state, letter - 96])
            lower = byte >= 97
            key = (key ^ _U(letter)) * _U(PRIME)
            letters += 1
        else:
            state = np.int64(markup.steps[state, 0])
            lower = False
            _add_name(found, key, letters)
            key, letters = _U(FNV), 0
        groups |= markup.found[state]
        if not 48 <= byte <= 57:
            whole = (whole ^ _U(byte)) * _U(PRIME)
    _add_name(found, key, letters)
    found[_MARKS] |= groups | markup.found[markup.steps[state, 0]]
    return whole


@compiled
def _holds(page: Bytes, at: int, end: int, word: Any) -> bool:
    """Return whether bytes, in lower case and without spaces, contain a word."""
    matched = 0
    while at < end:
        byte = page[at]
        byte |= 32 * (65 <= byte <= 90)
        if byte == word[matched]:
            matched += 1
            if matched == len(word):
                return True
        elif not is_space(byte):
            matched = 1 * (byte == word[0])
        at += 1
    return False


_CLASS, _ID, _ROLE, _STYLE = (np.frombuffer(name, np.uint8) for name in (b"class", b"id", b"role", b"style"))
_HIDDEN, _ARIA = (np.frombuffer(name, np.uint8) for name in (b"hidden", b"aria-hidden"))
_HREF, _ITEMPROP, _TYPE = (np.frombuffer(name, np.uint8) for name in (b"href", b"itemprop", b"type"))
_TRUE, _JSON = np.frombuffer(b"true", np.uint8), np.frombuffer(b"ld+json", np.uint8)
_SOME_SCREENS, _PRINT = np.frombuffer(b"(", np.uint8), np.frombuffer(b"print", np.uint8)
_NONE, _INVISIBLE = np.frombuffer(b"display:none", np.uint8), np.frombuffer(b"visibility:hidden", np.uint8)
_DISPLAY, _VISIBLE = np.frombuffer(b"display:", np.uint8), np.frombuffer(b"visibility:", np.uint8)
_FOUND, _LABELLED = np.frombuffer(b"until-found", np.uint8), np.frombuffer(b"aria-labelledby", np.uint8)
_EXPANDED = np.frombuffer(b"aria-expanded", np.uint8)
_CONTROLS, _MEDIA = np.frombuffer(b"aria-controls", np.uint8), np.frombuffer(b"media", np.uint8)
_AT_TYPE = np.frombuffer(b"@type", np.uint8)
_MARKS, _SIGN, _COUNT, _TARGET, _TARGET_END, LINK_COUNT, _SELECTORS, _FIRST_NAME = range(8)
"""Places in ``Tree.found``: facts about the current tag, and the numbers of links and selectors of the page."""
_HIDES, _MAY_SHOW, _SHOWS, _CONTROLLED = range(1, 5)
"""Effects of a selector: hides; displays on some screens; displays; is the id of an element that another controls."""


@compiled
def _is_name(page: Bytes, at: int, end: int, name: Any) -> bool:
    if end - at != len(name):
        return False
    same = True
    for place in range(len(name)):
        same &= page[at + place] | 32 * (65 <= page[at + place] <= 90) == name[place]
    return same


@compiled
def slot_of(keys: Any, key: int) -> int:
    """Return the slot of a key in a hash table of a power of two slots, or the free slot in which it belongs."""
    last = len(keys) - 1
    slot = np.int64(key * _U(_MIX) >> _U(20)) & last
    while keys[slot] != _U(0) and keys[slot] != key:
        slot = slot + 1 & last
    return slot


@compiled
def _store(tree: Any, key: int, effect: int) -> None:
    """Store the effect of a selector. A name that any rule displays is not hidden: a script may add the others."""
    slot = slot_of(tree.styles[:, 0], key)
    before = np.int64(tree.styles[slot, 1])
    if before >= effect or tree.found[_SELECTORS] >= STYLES // 2:
        return
    tree.found[_SELECTORS] += tree.styles[slot, 0] == _U(0)
    tree.styles[slot, 0], tree.styles[slot, 1] = key, effect


@compiled
def _read_names(page: Bytes, at: int, end: int, kind: int, tree: Any, controls: bool) -> int:
    """Return the marks that selectors give to the names in a class or id, or store ids that an element controls."""
    marks = np.int64(0)
    while at < end:
        while at < end and is_space(page[at]):
            at += 1
        key, begin = _U(FNV) ^ _U(kind), at
        while at < end and not is_space(page[at]):
            key = (key ^ _U(page[at])) * _U(PRIME)
            at += 1
        if at > begin and controls:
            _store(tree, key, _CONTROLLED)
        elif at > begin:
            effect = np.int64(tree.styles[slot_of(tree.styles[:, 0], key), 1])
            marks |= (IS_HIDDEN | 1 << HIDDEN) * (effect == _HIDES) | _IS_SHOWN * (effect == _MAY_SHOW)
            marks |= _DISCLOSED * (effect == _CONTROLLED)
    return marks


@compiled
def _read_attribute(
    page: Bytes, name: int, stop: int, value: int, value_stop: int, markup: Markup, tree: Any, block: bool
) -> None:
    """Store facts that an attribute states about its element; words only of elements of the tree."""
    found = tree.found
    is_class = _is_name(page, name, stop, _CLASS)
    is_id = not is_class and _is_name(page, name, stop, _ID)
    if is_class or is_id or _is_name(page, name, stop, _ROLE) or _is_name(page, name, stop, _ITEMPROP):
        if block:
            whole = _find_words(page, value, value_stop, markup, found)
            if is_class:
                found[_SIGN] = np.int64(whole & _U(0x7FFFFFFF))
        if is_id and value + 2 < value_stop and page[value] == 83 and page[value + 1] == 58:  # "S:", as React loads
            found[_MARKS] |= _IS_SHOWN
        elif found[_SELECTORS] and (is_class or is_id):
            found[_MARKS] |= _read_names(page, value, value_stop, 46 if is_class else 35, tree, False)
    elif _is_name(page, name, stop, _HREF):
        found[_MARKS] |= HAS_TARGET
        found[_TARGET], found[_TARGET_END] = value, value_stop
    elif _is_name(page, name, stop, _TYPE) and _holds(page, value, value_stop, _JSON):
        found[_MARKS] |= IS_DATA
    elif _is_name(page, name, stop, _CONTROLS):
        _read_names(page, value, value_stop, 35, tree, True)
        found[_MARKS] |= _IS_SWITCH
    else:
        found[_MARKS] |= _hiding(page, name, stop, value, value_stop)


@compiled
def _effect(page: Bytes, at: int, end: int) -> int:
    """Return whether declarations hide or display an element, or 0; the last one counts."""
    displays, visible = 0, 0
    while at < end:
        stop = next_byte(page, at, end, _SEMICOLON)
        if _holds(page, at, stop, _DISPLAY):
            displays = _HIDES if _holds(page, at, stop, _NONE) else _SHOWS
        elif _holds(page, at, stop, _VISIBLE):
            visible = _HIDES if _holds(page, at, stop, _INVISIBLE) else _SHOWS
        at = stop + 1
    return _HIDES if _HIDES in (displays, visible) else max(displays, visible)


@compiled
def _hiding(page: Bytes, name: int, stop: int, value: int, value_stop: int) -> int:
    """Return the marks of an attribute about whether its element is displayed."""
    hides = _is_name(page, name, stop, _HIDDEN) and not _holds(page, value, value_stop, _FOUND)
    effect = _effect(page, value, value_stop) if _is_name(page, name, stop, _STYLE) else hides * _HIDES
    if effect:
        return np.int64(IS_HIDDEN | 1 << HIDDEN if effect == _HIDES else _IS_SHOWN)
    if _is_name(page, name, stop, _LABELLED):
        return np.int64(_DISCLOSED)
    if _is_name(page, name, stop, _EXPANDED):
        return np.int64(_IS_SWITCH)
    if _is_name(page, name, stop, _MEDIA):
        some = _holds(page, value, value_stop, _SOME_SCREENS) or _holds(page, value, value_stop, _PRINT)
        return np.int64(some) * _IS_CONDITIONAL
    return np.int64(_is_name(page, name, stop, _ARIA) and _holds(page, value, value_stop, _TRUE)) << HIDDEN


@compiled
def _read_value(page: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Return start and end of an attribute's value, and the byte after it; ``at`` is after the ``=``."""
    while at < end and is_space(page[at]):
        at += 1
    quote = page[at] if at < end else 0
    if quote in (34, 39):
        begin, at = at + 1, next_byte(page, at + 1, end, quote)
        return begin, at, at + 1
    begin = at
    while at < end and page[at] != MORE and not is_space(page[at]):
        at += 1
    return begin, at, at


@compiled
def read_attributes(
    page: Bytes, at: int, end: int, markup: Markup, tree: Any, wanted: bool, block: bool
) -> tuple[int, bool]:
    """Store facts about a tag's attributes; return the byte after the tag, and whether it is self-closing."""
    closed = False
    tree.found[_MARKS] = tree.found[_SIGN] = tree.found[_COUNT] = 0
    while at < end and page[at] != MORE:
        if page[at] == SLASH or is_space(page[at]):
            closed = page[at] == SLASH
            at += 1
            continue
        name, at, closed = at, _name_end(page, at + 1, end), False
        stop, value, value_stop, after = at, at, at, at
        while after < end and is_space(page[after]):
            after += 1
        if after < end and page[after] == _EQUALS:
            value, value_stop, at = _read_value(page, after + 1, end)
        if wanted:
            _read_attribute(page, name, stop, value, value_stop, markup, tree, block)
    return min(at + 1, end), closed


@compiled
def _read_selectors(page: Bytes, at: int, end: int, effect: int, tree: Any) -> None:
    """Store the selectors of a rule: the simple ones if it hides, all parts if it displays."""
    while at < end:
        stop = next_byte(page, at, end, 44)
        while at < stop and is_space(page[at]):
            at += 1
        last = stop
        while last > at and is_space(page[last - 1]):
            last -= 1
        parts, key, begin = 0, _U(0), at
        while begin < last:
            kind = np.int64(page[begin])
            key = _U(FNV) ^ _U(kind)
            place = begin + 1
            while place < last and (
                is_letter(page[place]) or 48 <= page[place] <= 57 or page[place] in (45, 95, 92) or page[place] >= 128
            ):
                place += page[place] == 92 and place + 1 < last  # a backslash escapes the next byte
                key = (key ^ _U(page[place])) * _U(PRIME)
                place += 1
            simple = kind in (46, 35) and place > begin + 1
            if simple and effect != _HIDES:
                _store(tree, key, effect)
            parts += 1 if simple else 2
            begin = place
        if effect == _HIDES and parts == 1:
            _store(tree, key, effect)
        at = stop + 1


@compiled
def read_styles(page: Bytes, at: int, end: int, conditional: bool, tree: Any) -> None:
    """Store the selectors of a ``style`` element that hide or display elements.

    Rules inside at-rules hide nothing, since they depend on the screen, but may display an element.
    """
    least = np.int64(conditional)
    depth, begin = least, at
    while at < end and tree.found[_SELECTORS] < STYLES // 2:
        byte = page[at]
        if byte == SLASH and at + 1 < end and page[at + 1] == 42:
            at = next_byte(page, at + 2, end, 42)
            while at + 1 < end and page[at + 1] != SLASH:
                at = next_byte(page, at + 1, end, 42)
            begin = at = at + 2
        elif byte == 123:
            while begin < at and is_space(page[begin]):
                begin += 1
            if begin < at and page[begin] == 64:
                depth += 1
            else:
                stop = next_byte(page, at, end, 125)
                effect = _effect(page, at + 1, stop)
                if effect == _SHOWS and depth:
                    effect = _MAY_SHOW
                if effect and not (effect == _HIDES and depth):
                    _read_selectors(page, begin, at, effect, tree)
                at = stop
            at += 1
            begin = at
        else:
            at += 1
            if byte in (125, _SEMICOLON):
                depth = max(least, depth - (byte == 125))
                begin = at


@compiled
def read_types(page: Bytes, at: int, end: int, markup: Markup) -> int:
    """Return the kinds of pages, one bit each, that the types in a JSON-LD script indicate."""
    kinds = 0
    while at < end:
        at = next_byte(page, at, end, 64)
        if at + 6 >= end or not _is_name(page, at, at + 5, _AT_TYPE):
            at += 1
            continue
        at += 6
        while at < end and not is_letter(page[at]) and page[at] != 125:
            at += 1
        key = _U(FNV)
        while at < end and is_letter(page[at]):
            key = (key ^ _U(page[at])) * _U(PRIME)
            at += 1
        for each in range(len(markup.types)):
            if markup.types[each] == key:
                kinds |= np.int64(markup.type_kinds[each])
    return kinds


@compiled
def skip_declaration(page: Bytes, at: int, end: int) -> int:
    """Return the byte after a comment, a document type or a processing instruction that begins at ``<``."""
    if at + 3 < end and page[at + 1] == _EXCLAMATION and page[at + 2] == _DASH and page[at + 3] == _DASH:
        at += 4
        if at < end and page[at] == MORE:
            return at + 1
        at = next_byte(page, at, end, _DASH)
        while at + 2 < end:
            if page[at + 1] == _DASH:
                if page[at + 2] == MORE:
                    return at + 3
                if page[at + 2] == _EXCLAMATION and at + 3 < end and page[at + 3] == MORE:
                    return at + 4
            at = next_byte(page, at + 1, end, _DASH)
        return end
    return next_byte(page, at, end, MORE) + 1


@compiled
def skip_raw(page: Bytes, at: int, end: int, code: int, markup: Markup) -> int:
    """Return the start of the end tag of an element without markup."""
    at = next_byte(page, at, end, LESS)
    while at + 2 < end:
        if page[at + 1] == SLASH and tag_code(page, at + 2, end, markup)[0] == code:
            return at
        at = next_byte(page, at + 1, end, LESS)
    return end


@compiled
def _put_point(point: int, text: Bytes, place: int) -> int:
    """Write a code point as UTF-8, or U+FFFD for an invalid one; return its end."""
    if point < 0x80:
        text[place] = point
        return place + 1
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        point = 0xFFFD
    if point < 0x800:
        text[place], text[place + 1] = 0xC0 | point >> 6, 0x80 | point & 63
        return place + 2
    if point < 0x10000:
        text[place], text[place + 1], text[place + 2] = 0xE0 | point >> 12, 0x80 | point >> 6 & 63, 0x80 | point & 63
        return place + 3
    text[place], text[place + 1] = 0xF0 | point >> 18, 0x80 | point >> 12 & 63
    text[place + 2], text[place + 3] = 0x80 | point >> 6 & 63, 0x80 | point & 63
    return place + 4


_WINDOWS_1252 = np.array(
    [
        ord(bytes([byte]).decode("cp1252", "replace")) if byte not in b"\x81\x8d\x8f\x90\x9d" else byte
        for byte in range(128, 160)
    ],
    np.int64,
)


@compiled
def _put_number(page: Bytes, at: int, end: int, text: Bytes, place: int) -> tuple[int, int]:
    """Write the character of a numeric reference with digits that begin at a byte; return both ends."""
    base = 10
    if at < end and page[at] | 32 == 120:
        base, at = 16, at + 1
    point, begin = 0, at
    while at < end:
        byte = np.int64(page[at])
        digit = byte - 48 if 48 <= byte <= 57 else (byte | 32) - 87 if base == 16 and 97 <= (byte | 32) <= 102 else 16
        if digit == 16:
            break
        point = min(point * base + digit, 0x110000)
        at += 1
    if at == begin:
        return begin, place
    at += at < end and page[at] == _SEMICOLON
    if 128 <= point < 160:
        point = _WINDOWS_1252[point - 128]
    return at, _put_point(0xFFFD if point == 0 else point, text, place)


@compiled
def put_reference(page: Bytes, at: int, end: int, text: Bytes, place: int, markup: Markup) -> tuple[int, int]:
    """Write the text of the character reference at ``&``, or ``&`` itself; return both ends."""
    if at + 1 < end and page[at + 1] == _NUMBER:
        after, stop = _put_number(page, at + 2, end, text, place)
        if stop > place:
            return after, stop
    key, after, found, behind = _U(FNV), at + 1, -1, 0
    while after < end and after - at < 34:
        byte = page[after]
        if not (is_letter(byte) or 48 <= byte <= 57 or byte == _SEMICOLON):
            break
        key = (key ^ _U(byte)) * _U(PRIME)
        after += 1
        slot = np.int64(key >> _U(64 - REFERENCE_BITS))
        while markup.reference_keys[slot] != 0:
            if markup.reference_keys[slot] == key:
                found, behind = slot, after
                break
            slot = slot + 1 & (1 << REFERENCE_BITS) - 1
        if byte == _SEMICOLON:
            break
    if found < 0:
        text[place] = AND
        return at + 1, place + 1
    for each in range(markup.references[found, 0]):
        text[place + each] = markup.references[found, 1 + each]
    return behind, place + np.int64(markup.references[found, 0])


DEEPEST = 256
"""Maximum depth of elements in the tree, as in browsers; the text of deeper elements belongs to the element above."""

TAG, PARENT, FIRST, STOP, SIGN = range(5)
"""Columns of elements: code of the tag, the element around it, its first block, the block after its last, and a hash of
the tag and the letters of its classes."""

ELEMENT, BEGIN, END, LINKED, LINKS, WORDS, ENDS, COMMAS, DIGITS, CAPITALS, LINES, HIDER = range(12)
"""Columns of blocks.

``ELEMENT`` is the innermost element, ``BEGIN`` and ``END`` delimit the text, ``LINKED`` counts bytes in links and
``ENDS`` ends of sentences. ``HIDER`` is the outermost element that hides the block, or 0. The others are counts of
links, words, commas, digits, capitals and line breaks.
"""

_A, _BODY, _BR, _HEAD, _HTML = (CODE[name] for name in ("a", "body", "br", "head", "html"))
_NOSCRIPT, _P, _PRE, _SVG, _TEMPLATE = (CODE[name] for name in ("noscript", "p", "pre", "svg", "template"))
_DD, _DL, _DT, _LI, _MENU, _OL, _UL = (CODE[name] for name in ("dd", "dl", "dt", "li", "menu", "ol", "ul"))
_TABLE, _TBODY, _TD, _TFOOT = (CODE[name] for name in ("table", "tbody", "td", "tfoot"))
_BREAKOUTS = "blockquote body center dd div dl dt h1 h2 h3 h4 h5 h6 li menu ol p pre table ul"
_ENDS_DRAWING = tuple(CODE[name] for name in _BREAKOUTS.split())
"""Tags that are not part of an open ``svg`` or ``math`` element, and end it (HTML standard, 13.2.6.5)."""
_BUTTON, _IFRAME, _MATH = CODE["button"], CODE["iframe"], CODE["math"]
_TH, _THEAD, _TR, _H1, _H6, _STYLE_TAG = (CODE[name] for name in ("th", "thead", "tr", "h1", "h6", "style"))

(
    _ELEMENTS,
    _BLOCKS,
    _DEPTH,
    _OVERFLOW,
    _UNSEEN_FROM,
    _PRE_OPEN,
    _BEGIN,
    _PLACE,
    _IN_LINK,
    _LINK_FROM,
    _LINK_DEPTH,
    _LINKED,
    _LINKS,
    _INLINE,
    _INLINE_KEY,
    _INLINE_DEPTH,
    _KINDS,
    _HIDER,
    _HIDER_DEPTH,
    _LINK_TARGET,
    _LINK_TARGET_END,
    _ENDED,
    _ENDED_KEY,
) = range(23)
_STATE = 23
"""Size of the scanner's state.

``_ELEMENTS`` and ``_BLOCKS`` are counts. ``_DEPTH`` is the number of open elements, ``_OVERFLOW`` that of open elements
below ``DEEPEST``. ``_UNSEEN_FROM`` is the depth from which nothing is displayed, and ``_PRE_OPEN`` the number of open
``pre``. ``_BEGIN`` and ``_PLACE`` delimit the current block's text. ``_IN_LINK``, ``_LINK_FROM``, ``_LINK_DEPTH`` and
``_LINK_TARGET`` give whether a link is open, its start in the text, its depth and its target. ``_LINKED`` and
``_LINKS`` are the bytes in links and the links of the current block. ``_INLINE``, ``_INLINE_KEY`` and ``_INLINE_DEPTH``
are the open tags, the name and the depth of an inline element that is not displayed. ``_KINDS`` are kinds of pages.
``_HIDER`` and ``_HIDER_DEPTH`` are the outermost open element that is not displayed, or 0, and its depth. ``_ENDED``
and ``_ENDED_KEY`` are the byte after the last end tag, and its name.
"""

_NEWLINE = 10
_WIDE_ENDS = tuple(int.from_bytes(mark.encode()) for mark in "\u3002\uff01\uff1f\u0964\u104b\u17d4\u1362")
_WIDE_COMMAS = tuple(int.from_bytes(mark.encode()) for mark in "\u3001\uff0c")
_ARABIC_ENDS, _ARABIC_COMMA = (
    tuple(int.from_bytes(mark.encode()) for mark in "\u061f\u06d4"),
    int.from_bytes("\u060c".encode()),
)


class Tree(NamedTuple):
    """Elements and blocks of a page, with scratch memory; a page of n bytes has at most n // 3 + 2 elements."""

    elements: npt.NDArray[np.int32]
    """Shape (elements, 5), in the order of their start tags."""
    marks: npt.NDArray[np.int64]
    """Shape (elements,): groups of words in class, id, role and itemprop."""
    names: npt.NDArray[np.uint16]
    """Shape (elements, NAMES): hashes of these words, from 1 on; 0 for none."""
    blocks: npt.NDArray[np.int32]
    """Shape (blocks, 12), in the order of the page; all blocks of an element are adjacent."""
    text: Bytes
    """The texts of the blocks, decoded, with single spaces."""
    stack: npt.NDArray[np.int32]
    """Shape (DEEPEST + 1,): the open elements."""
    opened: npt.NDArray[np.int32]
    """Shape (256,): number of open elements by tag."""
    found: npt.NDArray[np.int64]
    """Shape (6 + NAMES,): facts about the attributes of the current tag, and the number of links."""
    links: npt.NDArray[np.int32]
    """Shape (links, 4): begin and end of a link in ``text``, and of its target in the page; one for each block."""
    styles: npt.NDArray[np.uint64]
    """Shape (STYLES, 2): hashes of selectors, and 1 for those that hide."""


def make_tree(size: int) -> Tree:
    """Allocate arrays for pages of up to ``size`` bytes."""
    most = size // 3 + 2
    return Tree(
        np.empty((most, 5), np.int32),
        np.empty(most, np.int64),
        np.empty((most, NAMES), np.uint16),
        np.empty((most, 12), np.int32),
        np.empty(size + size // 4 + TESTED + 8, np.uint8),
        np.empty(DEEPEST + 1, np.int32),
        np.empty(256, np.int32),
        np.empty(_FIRST_NAME + NAMES, np.int64),
        np.empty((most, 4), np.int32),
        np.empty((STYLES, 2), np.uint64),
    )


@compiled
def _measure(text: Bytes, block: Any) -> None:
    """Count words, marks, digits, capitals and lines of a block's text."""
    words, ends, commas, digits, capitals, lines, inside = 0, 0, 0, 0, 0, 0, False
    at, end = np.int64(block[BEGIN]), np.int64(block[END])
    while at < end:
        byte = np.int64(text[at])
        at += 1
        if byte <= 32:
            inside = False
            lines += byte == _NEWLINE
            continue
        words += not inside
        inside = True
        if 48 <= byte <= 57:
            digits += 1
        elif 65 <= byte <= 90:
            capitals += 1
        elif byte in (46, 33, 63):
            ends += at == end or text[at] <= 32 or text[at] == 34 or text[at] == 39 or text[at] == 41 or text[at] >= 128
        elif byte == 44:
            commas += 1
        elif byte >= 0xD8 and at + 1 < end:
            point = byte << 16 | np.int64(text[at]) << 8 | np.int64(text[at + 1])
            ends += point in _WIDE_ENDS or point >> 8 in _ARABIC_ENDS
            commas += point in _WIDE_COMMAS or point >> 8 == _ARABIC_COMMA
    block[WORDS], block[ENDS], block[COMMAS] = words, ends, commas
    block[DIGITS], block[CAPITALS], block[LINES] = digits, capitals, lines


@compiled
def _store_link(state: Any, tree: Tree, place: int) -> None:
    """Store the open link up to a place of the text, if it has text."""
    at, begin = tree.found[LINK_COUNT], state[_LINK_FROM]
    while begin < place and tree.text[begin] <= 32:
        begin += 1
    while place > begin and tree.text[place - 1] <= 32:
        place -= 1
    if place > begin and at < len(tree.links):
        link = tree.links[at]
        link[0], link[1], link[2], link[3] = begin, place, state[_LINK_TARGET], state[_LINK_TARGET_END]
        tree.found[LINK_COUNT] += 1


@compiled
def _end_block(state: Any, tree: Tree) -> None:
    """End the current block, if it has text."""
    begin, place = state[_BEGIN], state[_PLACE]
    while place > begin and tree.text[place - 1] <= 32:
        place -= 1
    if state[_IN_LINK]:
        state[_LINKED] += max(0, place - state[_LINK_FROM])
        _store_link(state, tree, place)
    if place > begin:
        block = tree.blocks[state[_BLOCKS]]
        block[ELEMENT], block[BEGIN], block[END] = tree.stack[state[_DEPTH] - 1], begin, place
        block[LINKED], block[LINKS] = min(state[_LINKED], place - begin), state[_LINKS]
        block[HIDER] = state[_HIDER]
        _measure(tree.text, block)
        state[_BLOCKS] += 1
    state[_BEGIN] = state[_PLACE] = state[_LINK_FROM] = place
    state[_LINKED], state[_LINKS] = 0, state[_IN_LINK]


@compiled
def _end_link(state: Any, tree: Tree) -> None:
    if state[_IN_LINK]:
        state[_LINKED] += max(0, state[_PLACE] - state[_LINK_FROM])
        _store_link(state, tree, state[_PLACE])
        state[_IN_LINK] = 0


@compiled
def _push(state: Any, tree: Tree, code: int, marks: int, markup: Markup) -> None:
    """Open an element."""
    depth, element = state[_DEPTH], state[_ELEMENTS]
    if depth > DEEPEST:
        state[_OVERFLOW] += 1
        return
    row = tree.elements[element]
    row[TAG], row[PARENT], row[FIRST] = code, tree.stack[depth - 1] if depth else 0, state[_BLOCKS]
    tree.marks[element] = marks
    row[SIGN] = tree.found[_SIGN] ^ code << 23
    for each in range(NAMES):
        tree.names[element, each] = tree.found[_FIRST_NAME + each] if each < tree.found[_COUNT] else 0
    tree.stack[depth] = element
    tree.opened[code] += 1
    state[_ELEMENTS] += 1
    state[_DEPTH] += 1
    state[_PRE_OPEN] += code == _PRE
    if marks & IS_HIDDEN and not marks & _DISCLOSED and code != _BODY and not state[_HIDER]:
        state[_HIDER], state[_HIDER_DEPTH] = element, depth
    if markup.kinds[code] & UNSEEN and not (state[_UNSEEN_FROM] or (code == _BUTTON and marks & _IS_SWITCH)):
        state[_UNSEEN_FROM] = state[_DEPTH]


@compiled
def _pop(state: Any, tree: Tree, depth: int) -> None:
    """Close elements until ``depth`` of them are open."""
    while state[_DEPTH] > depth:
        _end_block(state, tree)
        state[_DEPTH] -= 1
        row = tree.elements[tree.stack[state[_DEPTH]]]
        row[STOP] = state[_BLOCKS]
        tree.opened[row[TAG]] -= 1
        state[_PRE_OPEN] -= row[TAG] == _PRE
    if state[_UNSEEN_FROM] > depth:
        state[_UNSEEN_FROM] = 0
    if state[_INLINE_DEPTH] > depth:
        state[_INLINE] = 0
    if state[_HIDER] and state[_HIDER_DEPTH] >= depth:
        state[_HIDER] = 0
    if state[_LINK_DEPTH] > depth:
        _end_link(state, tree)


@compiled
def _depth_of(state: Any, tree: Tree, code: int, barrier: int, markup: Markup) -> int:
    """Return the depth of the innermost open element of a tag, or -1 if there is none inside a barrier."""
    if not tree.opened[code]:
        return -1
    for depth in range(state[_DEPTH] - 1, 0, -1):
        tag = tree.elements[tree.stack[depth], TAG]
        if tag == code:
            return depth
        if markup.kinds[tag] & barrier:
            return -1
    return -1


@compiled
def _end_item(state: Any, tree: Tree, code: int, other: int, markup: Markup) -> None:
    """Close the open list item of the innermost list."""
    for depth in range(state[_DEPTH] - 1, 0, -1):
        tag = tree.elements[tree.stack[depth], TAG]
        if tag in (code, other):
            _pop(state, tree, depth)
            return
        if tag in (_UL, _OL, _MENU, _DL) or markup.kinds[tag] & (SCOPE | UNSEEN):
            return


@compiled
def _pop_to_table(state: Any, tree: Tree, code: int) -> None:
    """Close elements up to the table, section or row in which a table part belongs."""
    depth = state[_DEPTH]
    while True:
        tag = tree.elements[tree.stack[depth - 1], TAG]
        section = tag in (_TBODY, _THEAD, _TFOOT)
        cell = code in (_TD, _TH)
        if tag == _TABLE or (section and (cell or code == _TR)) or (tag == _TR and cell):
            break
        depth -= 1
    _pop(state, tree, depth)


@compiled
def _start(state: Any, tree: Tree, code: int, marks: int, markup: Markup) -> None:
    """Open an element of the tree, after closing those that cannot contain it."""
    kind = markup.kinds[code]
    if code == _HTML or (code == _BODY and tree.opened[_BODY]):
        tree.marks[0] |= marks
        return
    top = tree.elements[tree.stack[state[_DEPTH] - 1], TAG]
    in_drawing = top in (_SVG, _MATH) and code in _ENDS_DRAWING
    if in_drawing or (top == _HEAD and code not in (_NOSCRIPT, _TEMPLATE)):
        _pop(state, tree, state[_DEPTH] - 1)
    _end_block(state, tree)
    depth = _depth_of(state, tree, _P, SCOPE | UNSEEN, markup) if kind & CLOSES_PARAGRAPH else -1
    if depth > 0:
        _pop(state, tree, depth)
    if kind & TABLE_PART:
        if not tree.opened[_TABLE]:
            return
        _pop_to_table(state, tree, code)
    elif code == _LI:
        _end_item(state, tree, _LI, _LI, markup)
    elif code in (_DT, _DD):
        _end_item(state, tree, _DT, _DD, markup)
    elif _H1 <= code <= _H6 and _H1 <= tree.elements[tree.stack[state[_DEPTH] - 1], TAG] <= _H6:
        _pop(state, tree, state[_DEPTH] - 1)
    _push(state, tree, code, marks, markup)


@compiled
def _finish(state: Any, tree: Tree, code: int, markup: Markup) -> None:
    """Handle the end tag of an element of the tree."""
    _end_block(state, tree)
    if code in (_BODY, _HTML):
        return
    if state[_OVERFLOW]:
        state[_OVERFLOW] -= 1
        return
    if code == _TABLE or markup.kinds[code] & TABLE_PART:
        depth = -1
        if tree.opened[code]:
            for each in range(state[_DEPTH] - 1, 0, -1):
                tag = tree.elements[tree.stack[each], TAG]
                if tag == code:
                    depth = each
                if tag in (code, _TABLE):
                    break
    else:
        depth = _depth_of(state, tree, code, SCOPE, markup)
    if depth > 0:
        _pop(state, tree, depth)


@compiled
def _put_line(state: Any, tree: Tree) -> None:
    """Write a line break, replacing a space before it."""
    place = state[_PLACE]
    if place > state[_BEGIN]:
        place -= tree.text[place - 1] == _SPACE and not state[_PRE_OPEN]
        tree.text[place] = _NEWLINE
        state[_PLACE] = place + 1


@compiled
def _read_text(page: Bytes, at: int, end: int, state: Any, tree: Tree, markup: Markup) -> int:
    """Add text to the current block; return the position of the next ``<``, at which text may continue."""
    text, place, begin, pre = tree.text, state[_PLACE], state[_BEGIN], state[_PRE_OPEN]
    source, target = np.int64(page.ctypes.data), np.int64(text.ctypes.data)
    while at < end:
        byte = page[at]
        if byte == LESS:
            break
        if byte > 32 and byte != AND and byte < 0xC2:
            if pre or at + TESTED > end:
                text[place] = byte
                place += 1
                at += 1
                continue
            spaces = find_blanks(source + at)
            plain = lowest_bit(find_marked(source + at) | spaces & spaces << _U(1))
            copy_block(target + place, source + at)
            at += plain
            place += plain
            continue
        before = place
        if byte == AND:
            at, place = put_reference(page, at, end, text, place, markup)
            width = wide_space(text, before, place)
            space = text[before] <= 32 or width == place - before
        else:
            width = 1 if byte <= 32 else wide_space(page, at, end)
            space = width > 0 and not (pre and byte in (_NEWLINE, _SPACE, 9))
            if place > begin or byte > 32:
                text[place] = byte
                place += 1
            at += max(abs(width), 1)
            while space and not pre and at < end and page[at] <= 32:
                at += 1
        if space or width < 0:
            place = before
            if space and place > begin and text[place - 1] > 32:
                text[place] = _SPACE
                place += 1
    state[_PLACE] = place
    return at


@compiled
def _read_end(state: Any, tree: Tree, code: int, key: int, markup: Markup) -> None:
    """Handle an end tag; ``</br>``, and ``</p>`` without an open paragraph, are line breaks."""
    if state[_INLINE] and state[_INLINE_KEY] == np.int64(key):
        state[_INLINE] -= 1
    if code == _A:
        _end_link(state, tree)
    elif code == _BR or (code == _P and not tree.opened[_P]):
        if not (state[_UNSEEN_FROM] or state[_INLINE]):
            _put_line(state, tree)
    elif markup.kinds[code] & BLOCK:
        _finish(state, tree, code, markup)


@compiled
def _read_start(state: Any, tree: Tree, code: int, key: int, closed: Any, markup: Markup) -> None:
    """Handle a start tag; only elements of foreign content such as SVG can be self-closing."""
    marks = tree.found[_MARKS]
    if marks & _IS_SHOWN:
        marks &= ~(IS_HIDDEN | 1 << HIDDEN)
    if not markup.kinds[code] & (BLOCK | VOID):
        if state[_INLINE]:
            state[_INLINE] += state[_INLINE_KEY] == np.int64(key)
        elif marks & IS_HIDDEN:
            state[_INLINE], state[_INLINE_KEY], state[_INLINE_DEPTH] = 1, np.int64(key), state[_DEPTH]
    if code == _A:
        _end_link(state, tree)
        if marks & HAS_TARGET:
            state[_IN_LINK], state[_LINK_FROM], state[_LINK_DEPTH] = 1, state[_PLACE], state[_DEPTH]
            state[_LINK_TARGET], state[_LINK_TARGET_END] = tree.found[_TARGET], tree.found[_TARGET_END]
            state[_LINKS] += 1
    elif code == _BR:
        if not (state[_UNSEEN_FROM] or state[_INLINE]):
            _put_line(state, tree)
    elif markup.kinds[code] & BLOCK and not (closed and (code == _SVG or tree.opened[_SVG])):
        _start(state, tree, code, marks & _OF_ELEMENTS, markup)


@compiled
def _separate(page: Bytes, at: int, end: int, state: Any, tree: Tree, code: int) -> None:
    """Write a space between two elements, such as links, that styles separate: "2026" and "1h 30m".

    Parts of a word are not: letters in lower case after a letter or digit.
    """
    place = state[_PLACE]
    if place == state[_BEGIN] or state[_PRE_OPEN] or tree.text[place - 1] <= 32:
        return
    before, after = tree.text[place - 1], page[at] if at < end else LESS
    lower, digit = 97 <= before <= 122, 48 <= before <= 57
    if code == _A or ((lower or digit) and 65 <= after <= 90) or ((digit or is_letter(before)) and 48 <= after <= 57):
        tree.text[place] = _SPACE
        state[_PLACE] = place + 1


@compiled
def _read_tag(page: Bytes, at: int, end: int, state: Any, tree: Tree, markup: Markup) -> int:
    """Handle the tag at ``<``; return the byte after it, or after its content if that is not markup."""
    closing, begin = page[at + 1] == SLASH, at
    code, at, key = tag_code(page, at + 1 + closing, end, markup)
    wanted = not closing and (markup.kinds[code] & VOID == 0)
    block = markup.kinds[code] & BLOCK > 0
    at, closed = read_attributes(page, at, end, markup, tree, wanted, block)
    if closing:
        _read_end(state, tree, code, key, markup)
        state[_ENDED], state[_ENDED_KEY] = at, np.int64(key)
    elif not markup.kinds[code] & RAW:
        follows = not block and state[_ENDED] == begin and state[_ENDED_KEY] == np.int64(key)
        if follows and not (state[_UNSEEN_FROM] or state[_INLINE]):
            _separate(page, at, end, state, tree, code)
        _read_start(state, tree, code, key, closed, markup)
    elif not (closed and (tree.opened[_SVG] or code == _IFRAME)):  # a self-closed iframe would hide the rest
        begin, at = at, skip_raw(page, at, end, code, markup)
        if code == _STYLE_TAG:
            read_styles(page, begin, at, tree.found[_MARKS] & _IS_CONDITIONAL > 0, tree)
        elif tree.found[_MARKS] & IS_DATA:
            state[_KINDS] |= read_types(page, begin, at, markup)
    return at


_REVEALED, _MOSTLY = 0.25, 0.5
"""Minimum shares of a page's text outside of links, and of all its text, in a hidden element that a script displays."""


@allocating
def _drop_hidden(tree: Tree, elements: int, blocks: int) -> int:
    """Remove blocks in hidden elements, and return the number of the others."""
    own, total = np.zeros((elements, 2), np.int64), np.zeros(2, np.int64)
    numbers, kept = np.zeros(blocks + 1, np.int32), 0
    for number in range(blocks):
        block = tree.blocks[number]
        size = block[END] - block[BEGIN]
        own[block[HIDER], 0] += size - block[LINKED]
        own[block[HIDER], 1] += size
        total[0] += size - block[LINKED]
        total[1] += size
    for number in range(blocks):
        numbers[number] = kept
        hider = tree.blocks[number, HIDER]
        if hider == 0 or own[hider, 0] >= _REVEALED * total[0] or own[hider, 1] >= _MOSTLY * total[1]:
            if kept < number:
                tree.blocks[kept] = tree.blocks[number]
            kept += 1
    numbers[blocks] = kept
    for element in range(elements):
        row = tree.elements[element]
        row[FIRST], row[STOP] = numbers[row[FIRST]], numbers[row[STOP]]
    return kept


@allocating
def scan(page: Bytes, tree: Tree, markup: Markup) -> tuple[int, int, int]:
    """Fill a tree with a page of UTF-8; return the numbers of its elements and blocks, and its kinds."""
    state = np.zeros(_STATE, np.int64)
    tree.opened[:] = 0
    tree.found[:] = 0
    tree.styles[:] = 0
    _push(state, tree, _HTML, 0, markup)
    at, end = 0, len(page)
    while at < end:
        if page[at] == LESS and at + 1 < end:
            byte = page[at + 1]
            if is_letter(byte) or (byte == SLASH and at + 2 < end and is_letter(page[at + 2])):
                at = _read_tag(page, at, end, state, tree, markup)
                continue
            if byte in (33, 63, SLASH):
                at = skip_declaration(page, at, end)
                continue
        if page[at] == LESS:
            if not (state[_UNSEEN_FROM] or state[_INLINE]):
                tree.text[state[_PLACE]] = LESS
                state[_PLACE] += 1
            at += 1
        unseen = state[_UNSEEN_FROM] or state[_INLINE]
        at = next_byte(page, at, end, LESS) if unseen else _read_text(page, at, end, state, tree, markup)
    _pop(state, tree, 0)
    return state[_ELEMENTS], _drop_hidden(tree, state[_ELEMENTS], state[_BLOCKS]), state[_KINDS]
