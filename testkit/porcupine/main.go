// Checks what the machines of scripts/object-stores hosts wrote down with a checker of histories that others made.
//
// Usage: porcupine FOLDER...
//
// A folder has what each process did and was told (told.*), and which refs there were at the end (now). Each ref
// must have one order of all that happened to it. That a push of several refs is all or nothing, and in the same
// order for all of them, is left to the check beside the processes: here each ref is looked at by itself, as this
// kind of search needs.
package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// The value of a ref that is not there.
const nothing = "0000000000000000000000000000000000000000"

// No ref has so much to be searched that it takes longer.
const longest = 5 * time.Minute

type kind int

const (
	// The ref had this value.
	read kind = iota
	// The ref had a value, and got another one.
	move
	// The ref did not have this value.
	refused
)

type step struct {
	kind     kind
	name     string
	old, new string
}

type push struct {
	writer       int
	begun, ended  int64
	told          string
	moves         []step
}

// What is known of one ref: its value.
var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byName := map[string][]porcupine.Operation{}
		for _, operation := range history {
			name := operation.Input.(step).name
			byName[name] = append(byName[name], operation)
		}
		var parts [][]porcupine.Operation
		for _, part := range byName {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return nothing },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		value, step := state.(string), input.(step)
		switch step.kind {
		case refused:
			return value != step.old, value
		case move:
			return value == step.old, step.new
		default:
			return value == step.old, value
		}
	},
}

func number(word string) int64 {
	parsed, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		panic(err)
	}
	return parsed
}

// Reads what one process wrote down; it may have been killed in the middle of a line.
func parse(path string, writer int, pushes *[]push, history *[]porcupine.Operation) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	open := -1
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		switch {
		case words[0] == "read" && len(words) == 5:
			value := words[4]
			if value == "-" {
				value = nothing
			}
			*history = append(*history, porcupine.Operation{
				ClientId: writer, Call: number(words[1]), Return: number(words[2]),
				Input: step{kind: read, name: words[3], old: value},
			})
		case words[0] == "begin" && len(words) > 3:
			begun := push{writer: writer, begun: number(words[1]), ended: math.MaxInt64}
			for at := 3; at+2 < len(words); at += 3 {
				begun.moves = append(begun.moves, step{move, words[at], words[at+1], words[at+2]})
			}
			open = len(*pushes)
			*pushes = append(*pushes, begun)
		case words[0] == "end" && len(words) >= 4 && open >= 0:
			ended := &(*pushes)[open]
			if ended.told = words[3]; ended.told != "unknown" {
				ended.ended = number(words[1])
			}
			open = -1
		}
	}
	return lines.Err()
}

// Tells which pushes took place of those that nobody was told of: those that somebody saw.
func seen(pushes []push, history []porcupine.Operation) []bool {
	values := map[[2]string]bool{}
	for _, operation := range history {
		step := operation.Input.(step)
		values[[2]string{step.name, step.old}] = true
	}
	took := make([]bool, len(pushes))
	for changed := true; changed; {
		changed = false
		for at, push := range pushes {
			is := push.told == "done"
			for _, step := range push.moves {
				is = is || push.told != "refused" && values[[2]string{step.name, step.new}]
			}
			if !is || took[at] {
				continue
			}
			took[at], changed = true, true
			for _, step := range push.moves {
				values[[2]string{step.name, step.old}] = true
			}
		}
	}
	return took
}

func check(folder string) error {
	paths, err := filepath.Glob(filepath.Join(folder, "told.*"))
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("%s: nobody wrote down anything (%v)", folder, err)
	}
	var pushes []push
	var history []porcupine.Operation
	for writer, path := range paths {
		if err := parse(path, writer, &pushes, &history); err != nil {
			return err
		}
	}
	now, err := os.ReadFile(filepath.Join(folder, "now"))
	if err != nil {
		return err
	}
	last := int64(0)
	names := map[string]string{}
	for _, push := range pushes {
		for _, step := range push.moves {
			names[step.name] = nothing
		}
		if last = max(last, push.begun); push.ended != math.MaxInt64 {
			last = max(last, push.ended)
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(string(now)), "\n") {
		if name, value, found := strings.Cut(line, " "); found {
			names[name] = value
		}
	}
	for name, value := range names {
		history = append(history, porcupine.Operation{
			ClientId: len(paths), Call: last + 1, Return: last + 2, Input: step{kind: read, name: name, old: value},
		})
	}
	took := seen(pushes, history)
	for at, push := range pushes {
		for _, step := range push.moves {
			operation := porcupine.Operation{ClientId: push.writer, Call: push.begun, Return: push.ended, Input: step}
			if !took[at] {
				// Which of several refs was the reason is not known, nor what became of what nobody saw.
				if len(push.moves) > 1 || push.ended == math.MaxInt64 {
					continue
				}
				step.kind = refused
				operation.Input = step
			}
			history = append(history, operation)
		}
	}
	switch porcupine.CheckOperationsTimeout(model, history, longest) {
	case porcupine.Ok:
		fmt.Printf("%s: %d refs, %d operations have an order\n", folder, len(names), len(history))
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%s: no order was found in %v", folder, longest)
	default:
		return fmt.Errorf("%s: %d refs, %d operations have no order", folder, len(names), len(history))
	}
}

func main() {
	wrong := false
	for _, folder := range os.Args[1:] {
		if err := check(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			wrong = true
		}
	}
	if wrong || len(os.Args) < 2 {
		os.Exit(1)
	}
}
