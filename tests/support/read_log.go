// A reader of tlog-tiles that shares no line with this issuer: golang.org/x/mod/sumdb, which verifies every Go module.
//
//	read_log FOLDER VKEY < {"indexes": [0, 7], "older": [base64 of a checkpoint, ...]}
//
// Verifies the checkpoint's signature, every tile and every entry up to its root, proofs of inclusion of the entries that
// are named, and that the trees of older checkpoints are prefixes. Prints what it read; the first thing wrong ends it.
package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const height, width = 8, 256

// folder reads tiles as files. sumdb's paths have the height in them, which tlog-tiles fixes and leaves out.
type folder string

func (f folder) Height() int { return height }

func (f folder) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, tile := range tiles {
		data, err := f.read(strings.TrimPrefix(tile.Path(), "tile/8/"))
		if err != nil {
			return nil, err
		}
		if len(data) != tile.W*tlog.HashSize {
			return nil, fmt.Errorf("%s has %d bytes", tile.Path(), len(data))
		}
		all = append(all, data)
	}
	return all, nil
}

func (f folder) SaveTiles([]tlog.Tile, [][]byte) {}

func (f folder) read(path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(f), "tile", path))
}

// entries returns the leaves of the bundle under a tile of level 0.
func (f folder) entries(tile tlog.Tile) [][]byte {
	data, err := f.read("entries" + strings.TrimPrefix(tile.Path(), "tile/8/0"))
	check(err)
	var all [][]byte
	for len(data) > 0 {
		if len(data) < 2 || len(data) < 2+int(binary.BigEndian.Uint16(data)) {
			log.Fatalf("entries of %s are cut off", tile.Path())
		}
		end := 2 + int(binary.BigEndian.Uint16(data))
		all, data = append(all, data[2:end]), data[end:]
	}
	if len(all) != tile.W {
		log.Fatalf("%s has %d entries", tile.Path(), len(all))
	}
	return all
}

// open verifies a checkpoint (c2sp.org/tlog-checkpoint): origin, size and root, signed under the origin's name.
func open(signed []byte, verifier note.Verifier) tlog.Tree {
	opened, err := note.Open(signed, note.VerifierList(verifier))
	check(err)
	lines := strings.Split(opened.Text, "\n")
	if len(lines) < 4 || lines[0] != verifier.Name() {
		log.Fatalf("no checkpoint of %s", verifier.Name())
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	check(err)
	root, err := tlog.ParseHash(lines[2])
	check(err)
	return tlog.Tree{N: size, Hash: root}
}

// readAll verifies every tile and every entry of the tree, and returns the entries.
func readAll(files folder, tree tlog.Tree, hashes tlog.HashReader) [][]byte {
	var indexes []int64
	var leaves [][]byte
	for n := int64(0); n < tree.N; n++ {
		indexes = append(indexes, tlog.StoredHashIndex(0, n))
	}
	for n := int64(0); n < tree.N; n += width {
		leaves = append(leaves, files.entries(tlog.Tile{H: height, N: n / width, W: min(width, tree.N-n)})...)
	}
	found, err := hashes.ReadHashes(indexes)
	check(err)
	if len(leaves) != len(found) {
		log.Fatalf("%d entries in a tree of %d", len(leaves), len(found))
	}
	for n, leaf := range leaves {
		if tlog.RecordHash(leaf) != found[n] {
			log.Fatalf("entry %d is not what the tree has", n)
		}
	}
	return leaves
}

func min(a, b int64) int {
	if a < b {
		return int(a)
	}
	return int(b)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	log.SetFlags(0)
	var asked struct {
		Indexes []int64
		Older   [][]byte
	}
	check(json.NewDecoder(os.Stdin).Decode(&asked))
	files := folder(os.Args[1])
	verifier, err := note.NewVerifier(os.Args[2])
	check(err)
	signed, err := os.ReadFile(filepath.Join(os.Args[1], "checkpoint"))
	check(err)
	tree := open(signed, verifier)
	hashes := tlog.TileHashReader(tree, files)
	leaves := readAll(files, tree, hashes)

	entries := map[int64]string{}
	for _, n := range asked.Indexes {
		proof, err := tlog.ProveRecord(tree.N, n, hashes)
		check(err)
		check(tlog.CheckRecord(proof, tree.N, tree.Hash, n, tlog.RecordHash(leaves[n])))
		entries[n] = base64.StdEncoding.EncodeToString(leaves[n])
	}
	for _, signed := range asked.Older {
		old := open(signed, verifier)
		proof, err := tlog.ProveTree(tree.N, old.N, hashes)
		check(err)
		check(tlog.CheckTree(proof, tree.N, tree.Hash, old.N, old.Hash))
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"origin": verifier.Name(), "size": tree.N, "root": tree.Hash[:], "entries": entries,
	}))
}
