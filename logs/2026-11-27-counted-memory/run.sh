# The scripts are kept as texts: `cp peak.py.txt peak.py; cp validation.py.txt validation.py` first.
# From this folder: every line of peaks.jsonl, one process at a time, and validation.txt.
for way in counted process; do
    for sizes in "4 256" "4 1024" "8 256" "8 1024"; do
        for script in 10 31 32; do python peak.py $way $script gpt2 $sizes; done
    done
done
for model in gpt2-medium gpt2-large; do
    for script in 10 31 32; do python peak.py counted $script $model 8 1024; done
done
# Where PyTorch sees a GPU.
for sizes in "gpt2 4 256" "gpt2 4 1024" "gpt2 8 256" "gpt2 8 1024" "gpt2-medium 8 1024" "gpt2-large 8 1024"; do
    for script in 10 31 32; do python peak.py counted $script $sizes cuda; done
done
python validation.py
