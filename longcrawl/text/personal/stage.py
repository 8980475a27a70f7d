"""Personal data that a pattern and a check can tell: addresses, and numbers of phones, cards and accounts."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.fields import Conditions, preset_fields
from longcrawl.core.places import TAG, list_by_document, make_places, no_places
from longcrawl.core.stages import Check, Edit, Edited, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.kernels.texts import check_not_masked, read_only, text_buffers, text_column, valid_texts

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

KINDS: Mapping[str, str] = MappingProxyType(
    {"email": "[EMAIL]", "phone": "[PHONE]", "ip": "[IP]", "card": "[CARD]", "iban": "[IBAN]"}
)
"""What is looked for, and what stands in its place by default."""

PERSONAL_DATA = "personal_data"
"""The column that the policy "tag" adds, list<struct<kind, start, end>>."""

TAG_TYPE = pa.list_(pa.struct([("kind", pa.string()), ("start", pa.int64()), ("end", pa.int64())]))

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "fineweb": {"kinds": ("email", "ip"), "replacements": ("email@example.com", "192.0.2.1"), "ipv6": "ignore"},
        "dolma": {
            "kinds": ("email", "phone", "ip"),
            "replacements": ("|||EMAIL_ADDRESS|||", "|||PHONE_NUMBER|||", "|||IP_ADDRESS|||"),
            "ips": "all",
            "ipv6": "ignore",
            "phones": "american",
            "max_found": 5,
        },
    }
)
"""Settings by name, see :meth:`PersonalData.preset`."""

_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 "
    "ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 "
    "LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 "
    "QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
"""Letters and digits of account numbers by country, as ISO 13616 registers them."""


class FoundPersonalData(NamedTuple):
    """Where texts have personal data."""

    rows: Longs
    """int64 [spans], the text of each span, in increasing order."""
    places: Longs
    """int64 [spans, 2], start and stop in bytes of all texts; those of one text are sorted and do not overlap."""
    kinds: Longs
    """int64 [spans], the place of each kind in ``KINDS``."""


@stage
class PersonalData(Edit):
    """Replace, tag or remove what a pattern and a check can tell to be personal: no names, and no postal addresses.

    * ``email``: up to 64 letters, digits and ``._%+'-`` before the ``@``, and a domain of letters, digits and hyphens
      whose last part is of letters, or an address of IP, in brackets or not; not names of files such as icon@2x.png;
    * ``ip``: addresses of IPv4 and IPv6 in public ranges, or all (``ips``); not "version 4.2.1.3", nor a part of a
      longer number with dots. An address of IPv6 has eight groups, one of three digits or more, or ``::`` and a first
      group that IANA has assigned (2000 to 3fff, fc00 to fdff, fe80 to febf, from ff00 on, 64:ff9b), or it is ``::1``
      or one of IPv4 behind ``::ffff:`` or ``::``. Names around ``::``, times, and slices are none. A zone (``%eth0``)
      belongs to it, a prefix length or a port does not;
    * ``card``: numbers of 13 to 19 digits, together or in the usual groups, that begin as those of a brand and whose
      last digit is right (Luhn);
    * ``iban``: account numbers of a country's length whose check digits are right (ISO 7064, modulo 97);
    * ``phone``: + and 8 to 15 digits (E.164), with the bracket of ``(+33) 1 23``; North American numbers of 3, 3 and 4
      digits with hyphens, full stops or an area code in parentheses; and, where tel, fax, phone, mobile, fon, cell or
      call is up to 20 characters before, those with spaces and those that begin with 0.

    All of it is ASCII, but for typographic spaces and hyphens in numbers of phones, cards and accounts: U+00A0, U+2007,
    U+2009, U+200A, U+202F, and U+2010 to U+2013. What begins first counts, and no two places overlap. The edit ledger
    has kind, place and the length of what stands there now, never the value.

    ``policy`` says what happens to them:

    * "mask": a replacement by kind stands in their place;
    * "tag": the column ``personal_data`` lists kind, start and end; nothing else changes;
    * "drop": documents that have any, or more than ``max_found``, leave.

    Args:
        policy: see above.
        kinds: what is looked for.
        replacements: for "mask": one for each of ``kinds``, in their order; "[EMAIL]", "[PHONE]", "[IP]", "[CARD]" and
            "[IBAN]" if left out.
        ips: "public" leaves private, reserved and documentation ranges alone, as IANA registers them.
        ipv6: "ignore" looks for addresses of IPv4 alone.
        phones: "all" of the forms above, or "american": three, three and four digits behind white space, with or
            without marks between them, and no others.
        max_found: a document with more of them leaves, by the rule ``max_found``. None: any number, but for "drop" 0.

    >>> import pyarrow as pa
    >>> text = "Write to jo.doe@mail.example.org, or call (212) 555-0187. Version 1.2.3 of 10.0.0.1 is out."
    >>> PersonalData()(pa.table({"text": [text]}))["text"][0].as_py()
    'Write to [EMAIL], or call [PHONE]. Version 1.2.3 of 10.0.0.1 is out.'

    Raises:
        StageError: the documents are masked already, and other lengths would shift the masks.
    """

    policy: Literal["mask", "tag", "drop"] = "mask"
    kinds: tuple[str, ...] = tuple(KINDS)
    replacements: tuple[str, ...] = ()
    ips: Literal["public", "all"] = "public"
    ipv6: Literal["search", "ignore"] = "search"
    phones: Literal["all", "american"] = "all"
    max_found: int | None = None

    rewrites = "text"
    code_version: ClassVar[str] = "2"
    only_with: ClassVar[Conditions] = MappingProxyType(
        {
            "replacements": {"policy": ("mask",)},
            "ips": {"kinds": ("ip",)},
            "ipv6": {"kinds": ("ip",)},
            "phones": {"kinds": ("phone",)},
        }
    )
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise StageError(f"{self.name}.kinds takes some of {', '.join(KINDS)}, each once, got {list(self.kinds)}")
        if self.replacements and len(self.replacements) != len(self.kinds):
            raise StageError(
                f"{self.name}.replacements has {len(self.replacements)} entries for {len(self.kinds)} kinds: one each"
            )
        if self.max_found is not None and self.max_found < 0:
            raise StageError(f"{self.name}.max_found must be 0 or more, got {self.max_found}")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "PersonalData":
        """Return a stage with published settings; ``changes`` are fields that are to differ.

        * "fineweb" (arXiv 2406.17557, and datatrove's PIIFormatter): addresses of mail and public addresses of IPv4 are
          replaced. There two mail addresses and six of IP are taken in turn, which depends on the order of documents;
          here it is one each, of the range for documentation (RFC 5737).
        * "dolma" (arXiv 2402.00159, and its tagger ``pii_regex_with_counts_fast_v2``): mail, addresses of IPv4 of any
          range and North American phones are replaced; a document with more than five is removed.

        Both look for these kinds, by the rules of this class and not to the letter by the patterns of the two. Those
        take express@2.0.0rc3 for an address of mail, 7.2.2.8 of a section for one of IP, and ten digits of a longer
        number for a phone; Dolma's pattern for mail misses an address that no white space follows, and replaces the
        spaces around each place.

        Raises:
            StageError: there is no such preset; the message lists those there are.
        """
        return cls(**preset_fields(cls, name, changes))

    def prepare(self) -> None:
        """Compile the kernels."""
        self.trace(pa.table({"text": pa.array(["a@b.org"], pa.large_string())}))

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Do what ``policy`` says to a batch of documents."""
        edited = self._edited(table, record="nothing")
        return edited.documents, edited.checks

    def trace(self, table: pa.Table) -> Edited:
        """Do what ``edit`` does, and list the places."""
        return self._edited(table, record="places")

    def marks(self, text: str, rule: str) -> Sequence[tuple[int, int]]:  # noqa: ARG002  # it has one rule
        """Return where personal data stand in a text."""
        texts = pa.array([text], pa.large_string())
        found = self._find(texts)
        return [(start, stop) for start, stop in _in_characters(texts, found).tolist()]

    def _edited(self, table: pa.Table, record: Literal["places", "nothing"]) -> Edited:
        texts = valid_texts(column(table, "text", self.name), self.name)
        found = self._find(texts)
        counts = np.bincount(found.rows, minlength=len(texts))
        places = _in_characters(texts, found) if record == "places" or self.policy == "tag" else found.places
        words = self._words()
        if self.policy == "mask":
            check_not_masked(table, self.name)
            if len(found.rows):
                made = _replaced(texts, found, words, table.schema.field("text").type)
                table = with_column(table, "text", made)
        elif self.policy == "tag":
            table = with_column(table, PERSONAL_DATA, _tagged(found, places, table.num_rows))
        checks = self._checks(counts)
        if record == "nothing":
            return Edited(table, checks, no_places())
        masks = self.policy == "mask"
        rules = pa.array([kind if masks else f"{TAG}_{kind}" for kind in KINDS]).take(pa.array(found.kinds))
        sizes = np.array([len(word) for word in words], np.int64)
        now = sizes[found.kinds] if masks else places[:, 1] - places[:, 0]
        return Edited(table, checks, make_places(found.rows, rules, places, now))

    def _checks(self, counts: Longs) -> list[Check]:
        most = 0 if self.policy == "drop" and self.max_found is None else self.max_found
        if most is None:
            return []
        return [Check("max_found", pa.array(counts), pa.array(counts <= most), most, "at_most")]

    def _words(self) -> tuple[str, ...]:
        """Return what stands in the place of each of ``KINDS``."""
        given = dict(zip(self.kinds, self.replacements, strict=False))
        return tuple(given.get(kind, word) for kind, word in KINDS.items())

    def _find(self, texts: pa.Array) -> FoundPersonalData:
        from longcrawl.text.personal import _number_kernels as kernels
        from longcrawl.text.personal._kernels import find_personal

        bits = {kind: getattr(kernels, kind.upper()) for kind in KINDS}
        wanted = sum(bits[kind] for kind in self.kinds) | (kernels.EVERY_IP if self.ips == "all" else 0)
        wanted |= kernels.IPV6 if self.ipv6 == "search" and "ip" in self.kinds else 0
        wanted |= kernels.AMERICAN if self.phones == "american" else 0
        data, offsets = text_buffers(texts)
        room = int(offsets[-1] - offsets[0]) // 3 + 1  # what is not written takes no memory
        documents, spans, found = np.empty(room, np.int64), np.empty((room, 2), np.int64), np.empty(room, np.uint8)
        count = find_personal(data, offsets, wanted, _account_lengths(), documents, spans, found)
        numbers = np.zeros(1 << len(KINDS), np.int64)
        numbers[list(bits.values())] = range(len(KINDS))
        return FoundPersonalData(documents[:count].copy(), spans[:count].copy(), numbers[found[:count]])


def _in_characters(texts: pa.Array, found: FoundPersonalData) -> Longs:
    from longcrawl.text.personal._kernels import to_characters

    places = found.places.copy()
    to_characters(*text_buffers(texts), found.rows, places)
    return places


def _replaced(texts: pa.Array, found: FoundPersonalData, words: Sequence[str], kind: pa.DataType) -> pa.Array:
    """Return the texts with words in the place of what was found."""
    from longcrawl.text.personal._kernels import replace_spans

    data, offsets = text_buffers(texts)
    letters, bounds = text_buffers(pa.array(words, pa.large_string()))
    more = np.diff(bounds)[found.kinds].sum() - (found.places[:, 1] - found.places[:, 0]).sum()
    out = np.empty(int(offsets[-1] - offsets[0] + more), np.uint8)
    ends = np.empty(len(offsets), np.int64)
    replace_spans(data, offsets, found.rows, found.places, found.kinds, letters, bounds, out, ends)
    return text_column(out, ends, texts, kind)


def _tagged(found: FoundPersonalData, places: Longs, documents: int) -> pa.Array:
    kinds = pa.array(list(KINDS)).take(pa.array(found.kinds))
    spans = {"kind": kinds, "start": pa.array(places[:, 0]), "end": pa.array(places[:, 1])}
    return list_by_document(found.rows, spans, documents).cast(TAG_TYPE)


@lru_cache(maxsize=1)
def _account_lengths() -> Bytes:
    """Return the length of account numbers by the two letters of a country: uint8 [676], 0 for none."""
    lengths = np.zeros(26 * 26, np.uint8)
    for entry in _LENGTHS.split():
        lengths[(ord(entry[0]) - 65) * 26 + ord(entry[1]) - 65] = int(entry[2:])
    return read_only(lengths)
